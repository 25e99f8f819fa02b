"""Which tests stay together where several processes share them (`make test`), and which run beside each other."""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

WAITING = ("tests/e2e/", "tests/chaos/", "tests/redis/", "tests/cli/test_up")
"""What mostly waits for processes of its own; all else mostly computes."""


def num_that_wait(num_processes: int) -> int:
    """Of these, how many run tests that wait, as long as there are some: the others have the cores meanwhile."""
    return -(-num_processes * 3 // 5)


class FilesAndGroups(LoadGroupScheduling):  # type: ignore[misc] # a package without types
    """Tests of one ``xdist_group`` run in one process, one after the other, and so do the others of one file.

    Some processes take tests that wait first, and the others those that compute, each in their order.
    """

    def _split_scope(self, nodeid: str) -> str:
        group_or_test: str = super()._split_scope(nodeid)
        return group_or_test.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        nodes = list(self.assigned_work)
        waits = nodes.index(node) < num_that_wait(len(nodes))
        chosen = next((scope for scope, tests in self.workqueue.items() if _waits(tests) == waits), None)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def _waits(tests: Iterable[str]) -> bool:
    return next(iter(tests)).startswith(WAITING)
