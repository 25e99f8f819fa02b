"""Start processes detached from the terminal, and stop them with everything that they started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from shared.config.config import CONFIG_ENV
from shared.errors import OperatorError
from shared.processes.process_record import ProcessRecord, is_running
from shared.telemetry.log_rotation import LOG_FILE_ENV

STOP_GRACE_S = 20.0  # SIGTERM to SIGKILL: the gateway drains its streams within this time
KILL_WAIT_S = 5.0  # SIGKILL works at once, unless a process hangs inside the kernel
CLEAN_WAIT_S = 5.0  # for those that clean up behind others, once these are gone
POLL_S = 0.02
CLEANERS = ("multiprocessing.resource_tracker", "gpu_node/vllm/installation/guard.py")
"""In the command lines of processes that end by themselves when all that they look after is gone, and give back what it
shared. Killed together with it, they would leave that behind."""


class StuckProcessesError(OperatorError):
    """Processes have outlived SIGKILL."""


def launch(argv: Sequence[str], environment: Mapping[str, str], log: Path, stage: int) -> ProcessRecord:
    """Start ``argv`` in a session of its own with both outputs appended to ``log``.

    It keeps that below a limit itself (`shared.telemetry.log_rotation`).

    `os.posix_spawn` and not `subprocess`: nothing here owns the process, it outlives this one on purpose.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            {**environment, LOG_FILE_ENV: str(log)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, descriptor, 1),
                (os.POSIX_SPAWN_DUP2, descriptor, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two; a server decides for itself
        )
    finally:
        os.close(descriptor)
    return ProcessRecord(pid, psutil.Process(pid).create_time(), stage, environment[CONFIG_ENV])


def exit_status(record: ProcessRecord) -> int | None:
    """Status of a child of this very process that has ended (negative: the signal); None if that is not known."""
    try:
        pid, status = os.waitpid(record.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None


def stop(records: Iterable[ProcessRecord], grace_s: float = STOP_GRACE_S) -> None:
    """Stop each process and all that it started, stage by stage, the last started first."""
    remaining = list(records)
    for stage in sorted({record.stage for record in remaining}, reverse=True):
        _stop_together([record for record in remaining if record.stage == stage], grace_s)


def _stop_together(records: list[ProcessRecord], grace_s: float) -> None:
    """Ask the leaders to end; they end their children. What is left after that has no one to end it but us."""
    members = {process for record in records for process in record.family()}
    leaders = [leader for record in records if (leader := record.leader()) is not None]
    _signal(leaders, signal.SIGTERM)
    _wait_gone(leaders, grace_s)
    members |= {process for record in records for process in record.family()}  # started since the first look
    cleaners = {process for process in members if _is_cleaner(process)}
    _signal(members - cleaners, signal.SIGKILL)
    stuck = _wait_gone(members - cleaners, KILL_WAIT_S)
    late = _wait_gone(cleaners, CLEAN_WAIT_S)
    _signal(late, signal.SIGKILL)
    if stuck := stuck + _wait_gone(late, KILL_WAIT_S):
        pids = ", ".join(str(process.pid) for process in stuck)
        raise StuckProcessesError(f"these processes did not end after SIGKILL: {pids}")


def _is_cleaner(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False  # it has just ended
    return any(name in command for name in CLEANERS)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # psutil refuses when the pid has been given to another process
        except psutil.NoSuchProcess:
            continue  # it was quicker


def _wait_gone(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until none runs, no longer than ``timeout_s``; returns those that still do."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if is_running(process)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if is_running(process)]
    return left
