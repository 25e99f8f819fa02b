"""Tests here run on each level of the CPU kernels."""

from __future__ import annotations

from tests.gpu_node.cpu_level import level

__all__ = ["level"]
