"""How a process of ours begins: without what libraries import on the chance that it is wanted, and without looking
for garbage among what it imports, all of which stays.

The first is a seventh of the time until a service runs, the second a tenth of what is left, and a cluster starts five
processes or more.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, cast

NOT_IMPORTED = ("rich", "opentelemetry.sdk.metrics")
"""Imported where installed, though our processes have no use for it: structlog draws tracebacks with rich, and ours are
JSON; redis-py counts with OpenTelemetry, and our metrics are Prometheus's."""
_LOCATING = "-m"  # in place of the program's name as long as `python -m` looks for the module


def begin() -> None:
    """Called by a package as it is imported; does nothing where the package is not the one that Python runs.

    From then on `NOT_IMPORTED` cannot be imported: Python says that there is no such module. So it is not for
    processes with packages that are not ours to know, such as vLLM's. Python's collector is off until the process's
    main function turns it on, which is the first that it does.
    """
    if sys.argv[0] != _LOCATING:
        return
    gc.disable()
    for name in NOT_IMPORTED:
        cast("dict[str, Any]", sys.modules).setdefault(name, None)
