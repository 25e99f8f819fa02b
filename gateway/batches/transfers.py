"""Files on their way through the gateway, in either direction: few at a time, of each tenant fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.openai.errors import batch_errors

MAX_TRANSFERS = 32  # of one process: each holds a connection and some pieces of 64 KiB
MAX_OF_TENANT = 8


class Transfers:
    """Those that go on."""

    def __init__(self) -> None:
        self._num_of: Counter[str] = Counter()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """While a file is on its way; `ApiError` 429 where there are too many."""
        if self._num_of.total() >= MAX_TRANSFERS or self._num_of[tenant] >= MAX_OF_TENANT:
            raise batch_errors.too_many_transfers()
        self._num_of[tenant] += 1
        try:
            yield
        finally:
            self._num_of[tenant] -= 1
            self._num_of += Counter()  # without those that have none
