"""So many of a kind at a time in one process, and of each tenant fewer: beyond, a newcomer is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TenantLimit:
    """Counts those that go on."""

    def __init__(self, most: int, most_of_tenant: int, refusal: Callable[[], Exception]) -> None:
        """``refusal``: what is raised where there are too many."""
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._refusal = refusal
        self._num_of: Counter[str] = Counter()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """Inside, it is one more of the tenant's."""
        if self._num_of.total() >= self._most or self._num_of[tenant] >= self._most_of_tenant:
            raise self._refusal()
        self._num_of[tenant] += 1
        try:
            yield
        finally:
            self._num_of[tenant] -= 1
            self._num_of += Counter()  # without those that have none
