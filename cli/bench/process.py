"""The process that measures for `treadle bench engine` and `treadle profile`, line by line.

It keeps tensors out of the command line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from cli.cluster.processes.process_plan import process_environment
from cli.config.yaml import process_yaml
from cli.errors import CliError, ClusterError
from gpu_node.bench.report import Said, decode
from shared.config.config import ClusterConfig

END_TIMEOUT_S = 30.0  # after its last line, or when it is told to end: a step of a large batch may be running
_LAST_LINES = 5


def lines_of(
    config: ClusterConfig, arguments: Sequence[str], module: str = "gpu_node.bench", python: str = sys.executable
) -> Generator[Said]:
    """Run ``PYTHON -m MODULE`` on the first node and model of ``config``.

    `CliError` for what the user can put right, `ClusterError` when the process dies. Close the generator to end it.
    """
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        file, errors = Path(folder, "cluster.yaml"), Path(folder, "stderr")
        file.write_text(process_yaml(config), encoding="utf-8")
        environment = process_environment(str(file), "", config.nodes[0].num_threads)
        command = [python, "-m", module, *arguments]
        with errors.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)  # noqa: S603
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield decode(line)
            status = process.wait(END_TIMEOUT_S)
        finally:
            _end(process)
        if status != 0:
            text = errors.read_text("utf-8", errors="replace").strip()
            if status == 2:
                raise CliError(text)
            last = "\n".join(text.splitlines()[-_LAST_LINES:])
            raise ClusterError(f"the measuring process ended with status {status}:\n{last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it stays behind."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
