"""Service-level objectives of a request: what was promised, and until when it must have started."""

from __future__ import annotations

import math

import msgspec

from shared.messages.requests.payload import UNPROMISED_S

CUSTOM = "custom"  # name of a promise that a request gave in numbers
# What a promise in numbers may be. None below these can be kept: a first token takes two messages through Redis and a
# step, which reads all weights (a tenth of a millisecond for 300 MB on the fastest devices, some for 7B), and a further
# token takes a step at least. There are 30 powers of two between the least and the most, so as many kinds of them.
MIN_START_S, MAX_START_S = 0.001, 7 * 86_400.0
MIN_TPOT_S, MAX_TPOT_S = 0.000_1, 3_600.0

UNBOUNDED_S = UNPROMISED_S  # a request without any promise is due within a day, so that nothing can starve


class Slo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Promise to one request; any subset of the three may be set. All in seconds from arrival.

    ``name`` is the class it came from, or ``custom`` for numbers given by the request.
    """

    name: str
    ttft_s: float | None = None
    tpot_s: float | None = None
    deadline_s: float | None = None

    @property
    def kind(self) -> str:
        """What makes two promises alike enough to share a queue: the class, or for numbers their order of magnitude.

        A custom promise of one second must not wait behind custom promises of an hour.
        """
        if self.name != CUSTOM:
            return self.name
        return f"{CUSTOM}-{2 ** math.ceil(math.log2(self.start_by_s(0.0)))}s"

    def start_by_s(self, arrival_s: float) -> float:
        """Absolute time by which the first token is due: the tighter of TTFT and end-to-end deadline.

        QLM (SoCC'24) §2 orders groups by their end-to-end SLO; with a TTFT promise the first token is due earlier.
        """
        ttft_s, deadline_s = self.ttft_s, self.deadline_s
        if ttft_s is None:
            return arrival_s + (UNBOUNDED_S if deadline_s is None else deadline_s)
        return arrival_s + (ttft_s if deadline_s is None else min(ttft_s, deadline_s))

    def finish_by_s(self, arrival_s: float, max_tokens: int) -> float:
        """Absolute time by which the last of ``max_tokens`` is due: by its pace from the first on, or by its deadline.

        Without a promise for what comes behind the first token, that is due with it.
        """
        if self.deadline_s is not None:
            return arrival_s + self.deadline_s
        return self.start_by_s(arrival_s) + (self.tpot_s or 0.0) * (max_tokens - 1)
