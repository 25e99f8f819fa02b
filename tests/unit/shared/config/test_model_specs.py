"""Models of a process while the file changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import changed_models, changed_weights, differences, weights_mark
from shared.config.model_specs import ModelSpecs

A = ModelSpec(name="a", source="a.gguf")
B = ModelSpec(name="b", source="b.gguf")


def test_differences_name_fields_and_leave_aliases_out() -> None:
    assert differences(A, replace(A, aliases=("x",))) == []
    assert differences(A, replace(A, source="c.gguf", weights="int8", aliases=("x",))) == ["source", "weights"]


def test_only_names_that_are_known_and_told_can_have_changed() -> None:
    assert changed_models({"a": A}, [B]) == {}
    assert changed_models({"a": A, "b": B}, [replace(A, max_model_len=128), B]) == {
        "a": "model 'a': its max_model_len changed; restart nodes and gateways, or give it another name"
    }


def test_a_model_is_what_was_told_last_of_it_or_what_the_engine_began_with() -> None:
    specs = ModelSpecs([A])
    assert specs.told("a") == A
    with pytest.raises(KeyError):
        specs.told("b")
    other = replace(B, source="other.gguf")
    assert [specs.told("b", B), specs.told("b"), specs.told("b", other), specs.told("b")] == [B, B, other, other]


def test_of_adapters_only_those_change_weights_that_have_their_names_already() -> None:
    x, y, other = (AdapterSpec(name=name, source=source) for name, source in (("x", "x"), ("y", "y"), ("x", "z")))
    known = {"a": replace(A, adapters=(x,))}
    assert changed_weights(known, [replace(A, adapters=(y, x), max_model_len=128)]) == {}
    assert changed_weights(known, [A, B]) == {}
    assert changed_weights(known, [replace(A, weights="int8", adapters=(y, other))]) == {
        "a": "model 'a': its weights, adapters changed; restart nodes and gateways, or give it another name"
    }


def test_what_processes_say_of_weights_stays_the_same_from_version_to_version() -> None:
    assert weights_mark(A) == weights_mark(replace(A, source="/models/a.gguf", name="b", max_model_len=128))
    assert weights_mark(A) == "da1253ce9af75a85"
