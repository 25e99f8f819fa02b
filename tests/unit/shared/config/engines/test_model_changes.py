"""What names stand for, while their file changes."""

from __future__ import annotations

from dataclasses import replace

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import WEIGHT_FIELDS, KnownModels, weights_mark

A = ModelSpec(name="a", source="a.gguf")
B = ModelSpec(name="b", source="b.gguf")
LEGAL = AdapterSpec("legal", "folders/legal")
OTHER = replace(LEGAL, source="folders/other", sha256="0" * 64)
RHYMES = AdapterSpec("rhymes", "folders/rhymes")


def test_fields_that_changed_are_named_and_aliases_may() -> None:
    known = KnownModels([A])
    assert known.changed([replace(A, aliases=("x",))]).problems == []
    assert known.changed([replace(A, source="c.gguf", weights="int8", aliases=("x",))]).models == {
        "a": "model 'a': its source, weights changed; restart nodes and gateways, or give it another name"
    }


def test_only_names_that_are_known_and_told_can_have_changed() -> None:
    assert KnownModels([A]).changed([B]).problems == []
    known = KnownModels([A, B])
    assert list(known.changed([replace(A, max_model_len=128), B]).models) == ["a"]
    assert KnownModels([A]).changed([replace(A, max_model_len=128)], WEIGHT_FIELDS).problems == []


def test_adapters_come_and_go_and_each_stays_what_it_was_also_where_it_was_away() -> None:
    known = KnownModels([replace(A, adapters=(LEGAL,))])
    for told in (A, replace(A, adapters=(RHYMES,)), replace(A, adapters=(RHYMES, LEGAL))):
        assert known.changed([told]).problems == []
        known.learn(told)
    assert known.changed([replace(A, adapters=(OTHER, RHYMES))]).adapters == {
        ("a", "legal"): (
            "adapter 'legal' of model 'a': its source, sha256 changed; restart nodes and gateways, or give it "
            "another name"
        )
    }
    assert known.adapter("a", "legal") == LEGAL, "what it was first"
    assert known.changed([replace(B, adapters=(OTHER,))]).problems == [], "of another model it is another one"


def test_what_is_not_learnt_is_not_known() -> None:
    known = KnownModels()
    known.learn(A)
    assert (known.model("a"), known.model("b")) == (A, None)
    assert known.models == {"a": A}
    assert (known.adapter("a", "legal"), known.adapter("b", "legal")) == (None, None)


def test_what_processes_say_of_weights_stays_the_same_from_version_to_version() -> None:
    assert weights_mark(A) == weights_mark(replace(A, source="/models/a.gguf", name="b", max_model_len=128))
    assert weights_mark(A) == "da1253ce9af75a85"
    assert len({weights_mark(A), weights_mark(A, LEGAL), weights_mark(A, OTHER), weights_mark(B, LEGAL)}) == 4
    assert weights_mark(A, LEGAL) == weights_mark(replace(A, adapters=(RHYMES,)), replace(LEGAL, name="x"))
