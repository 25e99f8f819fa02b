"""How many requests may begin: by what the engine can admit, and by the pace that groups of the queue ask for."""

from __future__ import annotations

from gpu_node.agent.decisions.intake.intake import Intake
from gpu_node.agent.decisions.ledger import Ledger
from gpu_node.agent.decisions.telling.self_report import SelfReport
from shared.messages.requests.requests import GroupRef

MAX_PULL = 64  # entries in one pull; bounds the script's time and the burst into the engine


class Headroom:
    """Owns nothing: it follows from what runs here, what was sent to the engine, and what the engine has told."""

    def __init__(self, ledger: Ledger, intake: Intake, report: SelfReport) -> None:
        self._ledger = ledger
        self._intake = intake
        self._report = report

    def of(self, ref: GroupRef, model: str) -> int:
        """Requests that may begin beside those that run, as far as their pace and their prompts allow.

        ``model``: the loaded one.
        """
        if ref.model != model:
            return MAX_PULL
        num_more = MAX_PULL if ref.max_running is None else ref.max_running - len(self._ledger.running)
        return num_more if ref.max_unread is None else min(num_more, ref.max_unread - self._num_unread)

    @property
    def num_admittable(self) -> int:
        """Requests that the engine would take beside all that are on their way to it."""
        return self._report.stats.num_admittable - self.num_unseen - self._intake.num_fetching

    @property
    def num_unseen(self) -> int:
        """Requests that the engine was sent and has not counted yet."""
        return self._intake.num_sent - self._report.stats.num_received

    @property
    def _num_unread(self) -> int:
        """Requests whose prompts the engine has yet to compute, those that it has not counted included."""
        return self._report.stats.num_waiting + self.num_unseen
