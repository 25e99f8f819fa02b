"""Who a process is, and what is stopped with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from shared.processes.process_record import ProcessRecord, is_running
from shared.processes.processes import exit_status, launch, stop

READ_TIMEOUT_S = 10
SLEEPER = "import signal; print('ready', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
# starts a child in the same session, tells its pid, and waits
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
# shares memory, which Python's own process gives back behind it
SHARING = """
import signal
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(SharedMemory(create=True, size=16).name, flush=True)
signal.pause()
"""


class Launcher:
    """Starts Python programs and knows the first line that each has written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.records: list[ProcessRecord] = []

    def __call__(self, program: str) -> tuple[ProcessRecord, str]:
        pipe = self._folder / f"pipe-{len(self.records)}"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        environment = {**os.environ, "TREADLE_CONFIG": str(self._folder / "config.yaml")}
        record = launch([sys.executable, "-c", program], environment, pipe, stage=1)
        self.records.append(record)
        os.set_blocking(reader, True)
        with os.fdopen(reader) as lines:
            return record, lines.readline().strip()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    stop(launcher.records, grace_s=0)


def test_a_launched_process_leads_its_own_session(start: Launcher) -> None:
    record, _ = start(SLEEPER)
    assert os.getsid(record.pid) == record.pid
    assert record.leader() == psutil.Process(record.pid)
    assert exit_status(record) is None


def test_a_process_with_a_reused_pid_is_not_killed(start: Launcher) -> None:
    record, _ = start(SLEEPER)
    earlier = replace(record, create_time=record.create_time - 60)
    assert earlier.leader() is None
    stop([earlier])
    assert is_running(psutil.Process(record.pid))


def test_a_stranger_in_a_session_of_the_same_number_is_not_killed(start: Launcher) -> None:
    record, child = start(PARENT)
    os.kill(record.pid, 9)
    psutil.Process(record.pid).wait(READ_TIMEOUT_S)
    other_cluster = replace(record, config_path="/elsewhere/config.yaml")
    stop([other_cluster])
    assert is_running(psutil.Process(int(child)))


def test_stopping_a_dead_process_ends_the_children_it_left(start: Launcher) -> None:
    record, child = start(PARENT)
    orphan = psutil.Process(int(child))
    os.kill(record.pid, 9)
    psutil.Process(record.pid).wait(READ_TIMEOUT_S)
    assert record.leader() is None
    assert is_running(orphan)
    stop([record])
    assert not is_running(orphan)


def test_stop_takes_the_children_along(start: Launcher) -> None:
    record, child = start(PARENT)
    family = [psutil.Process(record.pid), psutil.Process(int(child))]
    stop([record])
    assert not any(is_running(process) for process in family)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_time(start: Launcher) -> None:
    record, _ = start(STUBBORN)
    stop([record], grace_s=0.1)
    assert record.leader() is None
    assert exit_status(record) == -9


def test_who_cleans_up_behind_others_is_left_the_time_to(start: Launcher) -> None:
    record, name = start(SHARING)
    assert Path("/dev/shm", name).exists()
    while not any("resource_tracker" in " ".join(one.cmdline()) for one in record.family()):
        pass  # it is forked, and does not run its own program yet
    family = record.family()
    assert len(family) == 2
    stop([record], grace_s=0)
    assert not any(is_running(process) for process in family)
    assert not Path("/dev/shm", name).exists()


def test_exit_status_of_a_process_that_ended_by_itself(start: Launcher) -> None:
    record, line = start("print('bye', flush=True); raise SystemExit(3)")
    assert line == "bye"
    os.waitid(os.P_PID, record.pid, os.WEXITED | os.WNOWAIT)
    assert record.leader() is None
    assert exit_status(record) == 3
