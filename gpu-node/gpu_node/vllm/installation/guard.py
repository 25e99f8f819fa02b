"""Ends what an engine process with vLLM has started, when that is gone: ``python guard.py PID FOLDER BEGAN_S``.

vLLM's processes look after one another as long as they end in order. Killed with -9, the first leaves the others
behind, with the device's memory. So it stands at the head of a process group, and this process, outside of the group,
waits for its end. It has no imports but the standard library's: it costs 10 MB and no time.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

ROUNDS = 50
"""Of killing what is left, until nothing is: a process that is about to start another may do so once more."""
ROUND_S = 0.1
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's own
_OPENMP = "__KMP_REGISTERED_LIB_"
"""How Intel's OpenMP calls what it shares, behind it the process; it gives that back where a process ends in order."""
_OF_RANKS = "vllm_dist_*-cpushm_*"
"""By which vLLM's workers on processors speak with one another; they do not give it back."""
_TRACKER = b"multiprocessing.resource_tracker"
"""Python's own, which gives back shared memory when all others are gone: it is left to end by itself."""


def main(pid: int, folder: Path, began_s: float) -> None:
    """Wait for the end of ``pid``, a process group's head; end the group, and remove what it has left behind."""
    wait_for(pid)
    for _ in range(ROUNDS):
        left = members(pid)
        if not left:
            break
        for member in left:
            kill(member)
        time.sleep(ROUND_S)
    shutil.rmtree(folder, ignore_errors=True)
    forget_openmp(began_s)
    forget_ranks(began_s)


def forget_openmp(since_s: float) -> None:
    """Remove the shared memory of processes that began to compute since then, and are no more."""
    for path in SHARED_MEMORY.glob(f"{_OPENMP}*"):
        pid = path.name.removeprefix(_OPENMP).partition("_")[0]
        try:
            if path.stat().st_mtime >= since_s and not runs(Path("/proc", pid)):
                path.unlink()
        except (FileNotFoundError, PermissionError):
            continue  # another has removed it, or it is another user's


def forget_ranks(since_s: float) -> None:
    """Remove what workers have shared since then and no process has open any more."""
    for path in SHARED_MEMORY.glob(_OF_RANKS):
        try:
            if path.stat().st_mtime >= since_s and not is_mapped(path):
                path.unlink()
        except (FileNotFoundError, PermissionError):
            continue  # likewise


def is_mapped(path: Path) -> bool:
    """Whether any process has a file open as memory."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f" {path}\n" in (entry / "maps").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has just ended, or is another user's, who cannot have opened it
    return False


def wait_for(pid: int) -> None:
    """Until the process has ended; the kernel says so, whatever it dies of."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if os.getppid() == pid:  # else it had ended, and its number may be another's
            select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


def members(group: int) -> list[int]:
    """Living processes of a group, without those that end by themselves."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, its_group = state_and_group(entry)
            if its_group == group and state != "Z" and _TRACKER not in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return found


def runs(entry: Path) -> bool:
    """Whether a process of ``/proc`` is there and no zombie, which its parent has yet to reap."""
    try:
        return state_and_group(entry)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def state_and_group(entry: Path) -> tuple[str, int]:
    """Of a process; they stand behind its name, which may have any character in it."""
    state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
    return state, int(group)


def kill(pid: int) -> None:
    """At once; a process that has ended meanwhile is ignored."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with the one that it guards, and not before
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
