"""Which worker processes a gateway starts, stops and kills: time is what the test says."""

from __future__ import annotations

from itertools import pairwise

from gateway.workers.worker_pool import (
    KILL_AFTER_S,
    MAX_RESTART_S,
    RESTART_S,
    SILENT_S,
    START_S,
    STEADY_S,
    Kill,
    PoolAction,
    StartWorker,
    Stop,
    WorkerPool,
)

STOP_S = 16.0


class Gateway:
    """A pool, and processes that do what they are told."""

    def __init__(self, num_workers: int = 2) -> None:
        self.pool = WorkerPool(num_workers, STOP_S)
        self.now_s = 1000.0

    def due(self, after_s: float = 0.0) -> list[PoolAction]:
        self.now_s += after_s
        return self.pool.due(self.now_s)

    def ready(self, *lives: int) -> None:
        for life in lives:
            self.pool.heard(life, self.now_s, is_ready=True, hangs="")

    def end(self, life: int, how: str = "was ended by signal 9") -> None:
        self.pool.ended(life, self.now_s, how)


def running(num_workers: int = 2) -> Gateway:
    """All workers have been ready for long; their lives are 1 to N."""
    gateway = Gateway(num_workers)
    gateway.due()
    gateway.ready(1)
    gateway.due()
    lives = range(1, num_workers + 1)
    gateway.ready(*lives)
    gateway.now_s += STEADY_S
    gateway.ready(*lives)
    return gateway


# --- start ------------------------------------------------------------------------------------------------------------


def test_the_first_starts_alone_and_the_others_once_it_is_ready() -> None:
    gateway = Gateway(3)
    assert gateway.due() == [StartWorker(worker=0, life=1)]
    assert gateway.due() == []
    assert gateway.pool.not_ready() == "none of 3 workers is ready"
    gateway.ready(1)
    assert gateway.pool.not_ready() == ""
    assert gateway.due() == [StartWorker(worker=1, life=2), StartWorker(worker=2, life=3)]
    gateway.ready(2, 3)
    assert gateway.pool.num_ready == 3
    assert gateway.due() == []


def test_a_first_worker_that_cannot_start_ends_the_gateway() -> None:
    gateway = Gateway()
    gateway.due()
    gateway.end(1, "ended with status 2")
    assert gateway.pool.failure == "worker 0 ended with status 2 before any was ready; what it has logged says why"
    assert gateway.pool.is_over
    assert gateway.due() == []


def test_one_that_is_never_ready_is_killed_and_started_again() -> None:
    gateway = Gateway()
    gateway.due()
    assert gateway.due(START_S) == []
    assert gateway.due(1) == [Kill(1, "it was not ready after 300 s")]
    assert gateway.due(1) == [], "once"
    gateway.end(1)
    assert gateway.due() == []
    assert gateway.due(RESTART_S) == [StartWorker(worker=0, life=2)]


# --- ends that nobody asked for ---------------------------------------------------------------------------------------


def test_one_that_dies_is_started_again_and_the_others_are_left_alone() -> None:
    gateway = running()
    gateway.end(1)
    assert gateway.pool.num_ready == 1
    assert gateway.pool.not_ready() == ""
    assert gateway.due() == []
    assert gateway.due(RESTART_S) == [StartWorker(worker=0, life=3)]
    assert gateway.pool.num_restarts == [1, 0]


def test_one_that_dies_again_and_again_waits_twice_as_long_each_time() -> None:
    gateway = running(1)
    waits_s = []
    for life in range(1, 9):
        gateway.end(life)
        wait_s = RESTART_S
        while not gateway.due(wait_s):
            pass  # as long again
        gateway.ready(life + 1)
        waits_s.append(gateway.pool.lives[life + 1].started_s)
    gaps = [round(later - sooner, 1) for sooner, later in pairwise(waits_s)]
    assert gaps == [0.4, 0.8, 1.6, 3.2, 6.4, MAX_RESTART_S, MAX_RESTART_S]


def test_after_a_steady_life_the_next_start_is_quick_again() -> None:
    gateway = running(1)
    for life in (1, 2, 3):
        gateway.end(life)
        gateway.due(MAX_RESTART_S)
        gateway.ready(life + 1)
    gateway.now_s += STEADY_S
    gateway.ready(4)
    gateway.end(4)
    assert gateway.due(RESTART_S) == [StartWorker(worker=0, life=5)]


def test_one_whose_loop_hangs_is_killed() -> None:
    gateway = running()
    gateway.pool.heard(2, gateway.now_s, is_ready=True, hangs="the event loop has not turned for 16 s")
    assert gateway.due() == [Kill(2, "the event loop has not turned for 16 s")]
    assert gateway.pool.num_ready == 1
    assert gateway.due() == []
    gateway.end(2)
    assert gateway.due(RESTART_S) == [StartWorker(worker=1, life=3)]


def test_one_that_answers_nothing_at_all_is_killed() -> None:
    gateway = running()
    gateway.now_s += SILENT_S
    gateway.ready(1)
    assert gateway.due() == []
    assert gateway.due(1) == [Kill(2, "it has not answered for 30 s")]


def test_an_answer_of_one_that_has_ended_since_is_none() -> None:
    gateway = running()
    gateway.end(1)
    gateway.ready(1)
    assert gateway.pool.num_ready == 1


# --- replacement ------------------------------------------------------------------------------------------------------


def test_all_are_replaced_one_by_one_and_each_new_one_is_ready_before_its_old_one_is_asked_to_end() -> None:
    gateway = running()
    gateway.pool.replace_all()
    assert gateway.due() == [StartWorker(worker=0, life=3)]
    assert gateway.due(5) == []
    gateway.ready(3)
    assert gateway.due() == [Stop(1)]
    assert gateway.due() == [], "its streams end first"
    gateway.end(1, "ended with status 0")
    assert gateway.due() == [StartWorker(worker=1, life=4)]
    gateway.ready(4)
    assert gateway.due() == [Stop(2)]
    gateway.end(2, "ended with status 0")
    assert gateway.due() == []
    assert gateway.pool.num_ready == 2
    assert gateway.pool.num_restarts == [0, 0]
    assert gateway.pool.abandoned == ""


def test_an_old_one_that_does_not_end_is_killed() -> None:
    gateway = running(1)
    gateway.pool.replace_all()
    gateway.due()
    gateway.ready(2)
    assert gateway.due() == [Stop(1)]
    gateway.now_s += STOP_S + KILL_AFTER_S
    gateway.ready(2)
    assert gateway.due() == [Kill(1, "it was asked to end and has not")]


def test_a_new_one_that_cannot_start_leaves_the_old_ones_alone() -> None:
    gateway = running()
    gateway.pool.replace_all()
    gateway.due()
    gateway.end(3, "ended with status 2")
    assert gateway.due(MAX_RESTART_S) == []
    assert gateway.pool.num_ready == 2
    assert gateway.pool.abandoned == (
        "the new process of worker 0 ended with status 2 before the old one had left: the old ones go on"
    )
    gateway.pool.replace_all()
    assert gateway.due() == [StartWorker(worker=0, life=4)], "asked again, it is tried again"
    assert gateway.pool.abandoned == ""


def test_an_old_one_that_dies_before_its_turn_is_not_replaced_twice() -> None:
    gateway = running()
    gateway.pool.replace_all()
    gateway.due()
    gateway.end(2)
    assert gateway.due(RESTART_S) == [StartWorker(worker=1, life=4)]
    gateway.ready(3)
    assert gateway.due() == [Stop(1)]
    gateway.end(1)
    gateway.ready(4)
    assert gateway.due() == []
    assert sorted(gateway.pool.lives) == [3, 4]


def test_an_old_one_that_dies_while_its_successor_starts_is_followed_by_it() -> None:
    gateway = running(1)
    gateway.pool.replace_all()
    gateway.due()
    gateway.end(1)
    assert gateway.due(MAX_RESTART_S) == []
    gateway.ready(2)
    assert gateway.due() == []
    assert gateway.pool.num_ready == 1


# --- the end ----------------------------------------------------------------------------------------------------------


def test_all_are_asked_to_end_at_once_and_none_is_started_again() -> None:
    gateway = running()
    gateway.pool.stop()
    assert gateway.pool.not_ready() == "stopping"
    assert gateway.due() == [Stop(1), Stop(2)]
    gateway.end(1, "ended with status 0")
    assert gateway.due(STOP_S) == []
    assert not gateway.pool.is_over
    assert gateway.due(KILL_AFTER_S) == [Kill(2, "it was asked to end and has not")]
    gateway.end(2)
    assert gateway.due(MAX_RESTART_S) == []
    assert gateway.pool.is_over


def test_a_stop_in_the_middle_of_a_replacement_ends_old_and_new() -> None:
    gateway = running(1)
    gateway.pool.replace_all()
    gateway.due()
    gateway.pool.stop()
    assert gateway.due() == [Stop(1), Stop(2)]
    gateway.end(2)
    gateway.end(1)
    assert gateway.pool.is_over
    assert gateway.pool.failure == ""
