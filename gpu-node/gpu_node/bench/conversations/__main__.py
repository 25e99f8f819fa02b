"""The conversations' process: ``python -m gpu_node.bench.conversations``, started by `treadle bench conversations`.

Measures the first node of the configuration with its first model. Says on stdout what `gpu_node.bench.report` defines;
what is wrong goes to stderr in one line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from gpu_node.bench.conversations.measure import Conversations
from gpu_node.bench.conversations.workload import FULL, QUICK
from gpu_node.bench.report import PointProgress, ReportLine, encode
from gpu_node.engine.border.executor import ModelTooLargeError
from shared.config.config import load_config
from shared.errors import OperatorError

PROGRESS_S = 0.2
"""Between two reports of progress: a line costs the measured engine some microseconds."""


class _Progress:
    def __init__(self) -> None:
        self._doing, self._num_tokens, self._said_s = "", 0, 0.0

    def advance(self, doing: str, num_tokens: int) -> None:
        now_s = time.perf_counter()
        self._num_tokens += num_tokens
        if doing != self._doing or now_s - self._said_s > PROGRESS_S:
            _say(PointProgress(doing, self._num_tokens))
            self._doing, self._num_tokens, self._said_s = doing, 0, now_s


def _say(line: ReportLine) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.bench.conversations", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", help="on the SSD; a temporary one by default")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    try:
        config = load_config()
        with tempfile.TemporaryDirectory(prefix="treadle-kv-", dir=arguments.folder) as folder:
            measured = Conversations(
                config.nodes[0], config.models[0], config.engine, size, Path(folder), _Progress().advance
            )
            for row in measured.rows():
                _say(row)
            for copy_out in measured.copy_out():
                _say(copy_out)
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
