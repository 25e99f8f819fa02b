"""How processes share the tests: what belongs together stays together, and one computes while the others wait."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.nodeid import NodeId

from tests.sharing import FilesAndGroups, name_groups

CLUSTERS = [f"tests/e2e/test_{name}.py::test" for name in "abcdef"]
SHARED = [f"tests/e2e/test_{name}.py::test@shared of tests/e2e" for name in "gh"]
FILES = [f"tests/unit/test_{name}.py::test_{number}" for name in "abcdefgh" for number in range(3)]
COLLECTED = [*CLUSTERS, *SHARED, *FILES]


class Worker:
    """Stands for a process: it runs what it is given, in that order."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Shared:
    """The scheduler with its workers; each runs its next test in turn."""

    def __init__(self, config: pytest.Config, num_workers: int) -> None:
        values = {"tx": ["popen"] * num_workers}
        options: Any = SimpleNamespace(option=config.option, getvalue=values.__getitem__)
        self.scheduler = FilesAndGroups(options)
        self.workers = [Worker(number) for number in range(num_workers)]
        for worker in self.workers:
            self.scheduler.add_node(worker)
            self.scheduler.add_node_collection(worker, COLLECTED)
        self.scheduler.schedule()

    def run(self) -> list[list[str]]:
        """By round, the tests that run at the same time."""
        rounds = []
        done = dict.fromkeys(self.workers, 0)
        while running := {w: w.given[done[w]] for w in self.workers if done[w] < len(w.given)}:
            rounds.append([COLLECTED[index] for index in running.values()])
            for worker, index in running.items():
                done[worker] += 1
                self.scheduler.mark_test_complete(worker, index)
        return rounds


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
def test_each_test_runs_once_and_files_and_groups_stay_in_one_process(
    num_workers: int, pytestconfig: pytest.Config
) -> None:
    shared = Shared(pytestconfig, num_workers)
    shared.run()
    given = [COLLECTED[index] for worker in shared.workers for index in worker.given]
    assert sorted(given) == sorted(COLLECTED)
    for together in (SHARED, *(FILES[first : first + 3] for first in range(0, len(FILES), 3))):
        first = given.index(together[0])
        assert given[first : first + len(together)] == together


def test_one_process_computes_while_the_others_wait_for_clusters(pytestconfig: pytest.Config) -> None:
    rounds = Shared(pytestconfig, 3).run()
    waiting = [sum("tests/e2e" in test for test in together) for together in rounds]
    assert waiting[:2] == [2, 2]
    assert max(waiting) == 2


@pytest.mark.xdist_group("what belongs together")
def test_a_group_stands_behind_the_id_of_its_tests(request: pytest.FixtureRequest) -> None:
    item = copy.copy(request.node)
    bare = item.nodeid.partition("@")[0]  # one of several processes has named it already
    item._id = NodeId.parse(bare)
    name_groups([item])
    assert item.nodeid == f"{bare}@what belongs together"
