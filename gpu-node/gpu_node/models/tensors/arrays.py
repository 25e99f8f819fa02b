"""What weights are without torch."""

from __future__ import annotations

from typing import Any

import numpy as np

Int8s = np.ndarray[Any, np.dtype[np.int8]]
Float32s = np.ndarray[Any, np.dtype[np.float32]]
