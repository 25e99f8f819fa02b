"""All targets by name."""

from __future__ import annotations

from tests.fuzz import (
    answers,
    bodies,
    calls,
    engine_requests,
    frames,
    images,
    messages,
    model_files,
    model_folders,
    tokenizer_files,
)
from tests.fuzz.target import Target

_ROOMS = (
    messages,
    frames,
    images,
    engine_requests,
    model_files,
    model_folders,
    tokenizer_files,
    bodies,
    answers,
    calls,
)
TARGETS: dict[str, Target] = {target.name: target for room in _ROOMS for target in room.TARGETS}
