"""How a process of ours begins: with as few imports as it needs, and without a look for garbage among them.

A quarter of the time until it serves was spent on neither's behalf; twenty processes start with a cluster.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, cast

NOT_IMPORTED = ("rich", "opentelemetry.sdk.metrics")
"""What libraries import where it is installed, though our processes have no use for it: structlog draws tracebacks with
rich, and ours are JSON; redis-py counts with OpenTelemetry, and our metrics are Prometheus's."""
IMPORT_THRESHOLD = 100_000
"""New objects until Python looks for cycles among them: what is imported stays, and by Python's own measure, 700, it is
looked through hundreds of times."""
_LOCATING = "-m"  # in place of the program's name as long as `python -m` looks for the module


def begin() -> None:
    """Called by a package as it is imported; does nothing where the package is not the one that Python runs.

    For all of the process's life, `NOT_IMPORTED` cannot be imported: Python says that there is no such module. Cycles
    are looked for seldom until `shared.processes.garbage` says how from then on.
    """
    if sys.argv[0] != _LOCATING:
        return
    for name in NOT_IMPORTED:
        cast("dict[str, Any]", sys.modules).setdefault(name, None)
    gc.set_threshold(IMPORT_THRESHOLD)
