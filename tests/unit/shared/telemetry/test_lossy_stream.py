from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from shared.telemetry.lossy_stream import LossyStream

SPEAKER = """
import structlog
from shared.telemetry.lossy_stream import LOST_LINES
from shared.telemetry.telemetry import configure_logging

configure_logging("speaker", "one")
for number in range(100):
    structlog.get_logger().info("line", number=number)
print(LOST_LINES.collect()[0].samples[0].value >= 100)
"""


def test_lines_reach_the_stream() -> None:
    inner = io.StringIO()
    stream = LossyStream(inner)

    assert stream.write("a\n") == 2
    stream.flush()

    assert inner.getvalue() == "a\n"


def test_a_process_goes_on_whose_log_is_on_a_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        spoken = subprocess.run([sys.executable, "-c", SPEAKER], stdout=subprocess.PIPE, stderr=full, check=False)

    assert spoken.stdout == b"True\n"
