"""Models of an engine, which is told more of them while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs

A = ModelSpec(name="a", source="a.gguf")
B = ModelSpec(name="b", source="b.gguf")


def test_a_model_is_what_was_told_last_of_it_or_what_the_engine_began_with() -> None:
    specs = ModelSpecs([A])
    assert specs.told("a") == A
    with pytest.raises(KeyError):
        specs.told("b")
    other = replace(B, source="other.gguf")
    assert [specs.told("b", B), specs.told("b"), specs.told("b", other), specs.told("b")] == [B, B, other, other]
