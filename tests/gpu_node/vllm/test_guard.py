"""Nobody of an engine's process group outlives its head, whatever that dies of."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_node.vllm.installation.guard import members

# a head that starts its guard as an engine does, and a child that ignores all but SIGKILL
HEAD = """
import signal, subprocess, sys, time
from gpu_node.vllm.installation.processes import begin_group
print(begin_group(), flush=True)
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", ignore], stdout=subprocess.PIPE)
child.stdout.readline()
print(open(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_0", "x").name, flush=True)
print(open(f"/dev/shm/vllm_dist_{child.pid}-tp:0-[0-1]-cpushm_0", "x").name, flush=True)
print("ready", flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
"""
WAIT_S = 20.0


@pytest.mark.parametrize("end", ["kill", "leave"])
def test_who_is_left_behind_is_ended_and_the_folder_goes(end: str) -> None:
    command = [sys.executable, "-c", HEAD, "stay" if end == "kill" else "go"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as head:
        assert head.stdout is not None
        folder = Path(head.stdout.readline().strip())
        shared = [Path(head.stdout.readline().strip()) for _ in range(2)]
        assert head.stdout.readline() == "ready\n"
        assert all(path.exists() for path in shared)
        present = members(head.pid)
        if end == "kill":
            head.send_signal(signal.SIGKILL)
        head.wait()
        assert end != "kill" or len(present) == 2
    deadline = time.monotonic() + WAIT_S
    while (
        folder.exists() or any(path.exists() for path in shared) or members(head.pid)
    ) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert members(head.pid) == []
    assert not folder.exists()
    assert not any(path.exists() for path in shared)
