"""Which tests stay together where several processes share them, and which run at the same time (`make test`)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.nodeid import NodeId
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

WAITING = ("tests/e2e", "tests/chaos")
"""Tests that mostly wait, for clusters whose processes compute now and then."""


def name_groups(items: Iterable[pytest.Item]) -> None:
    """Write the ``xdist_group`` of tests behind their ids: nothing else is known of them where tests are shared out.

    pytest-xdist does that by a field that pytest has no more since 9.2, and says nothing: no group stays together then.
    """
    for item in items:
        if names := sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}):
            item._id = NodeId.parse(f"{item.nodeid}@{'_'.join(names)}")
            assert item.nodeid.endswith(names[-1]), "pytest has ids of yet another kind"


class FilesAndGroups(LoadGroupScheduling):  # type: ignore[misc] # a package without types
    """Tests of one ``xdist_group`` run in one process, one after the other, and so do the others of one file.

    One process computes while the others wait: if all of them waited first, cores would be idle then.
    """

    def _split_scope(self, nodeid: str) -> str:
        group_or_test: str = super()._split_scope(nodeid)
        return group_or_test.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [work for other, work in self.assigned_work.items() if other is not node]
        if others and all(_has_to_wait(work) for work in others):
            computing = next((scope for scope in self.workqueue if not _waits(scope)), None)
            if computing is not None:
                self.workqueue.move_to_end(computing, last=False)
        super()._assign_work_unit(node)


def _waits(scope: str) -> bool:
    return any(folder in scope for folder in WAITING)


def _has_to_wait(work: dict[str, dict[str, bool]]) -> bool:
    return any(_waits(scope) and not all(tests.values()) for scope, tests in work.items())
