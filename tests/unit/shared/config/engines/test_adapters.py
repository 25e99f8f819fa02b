"""Adapters in a configuration: one namespace with models, and all that is wrong with them at once, at its place."""

from __future__ import annotations

import pytest

from shared.config.config import parse_config
from shared.config.engines.adapters import MAX_ADAPTERS, AdapterRoom, AdapterSpec
from shared.config.engines.engine import MAX_ALIASES
from tests.unit.shared.config.test_config import problems

DIGEST = "0123456789abcdef" * 4
KIND = "a directory in PEFT's layout, hf:ORG/NAME@COMMIT, or s3://BUCKET/PREFIX/"


def test_a_model_has_its_adapters_in_their_order() -> None:
    text = f"""
        models:
          - name: smol
            source: smol.gguf
            adapters:
              - {{name: legal, source: ~/adapters/legal, sha256: {DIGEST}}}
              - {{name: org/short, source: adapters/short}}
          - {{name: other, source: other.gguf}}
    """
    first, second = parse_config(text, "cluster.yaml").models
    assert first.adapters == (
        AdapterSpec("legal", "~/adapters/legal", sha256=DIGEST),
        AdapterSpec("org/short", "adapters/short"),
    )
    assert second.adapters == ()


def test_models_and_adapters_share_one_namespace() -> None:
    text = """
        models:
          - {name: smol, source: x, adapters: [{name: legal, source: a}, {name: other, source: b}]}
          - {name: other, source: y, adapters: [{name: other, source: c}, {name: own, source: c}]}
          - {name: other, source: z, adapters: [{name: legal, source: d}]}
    """
    assert problems(text) == [
        "models.0.adapters.1: 'other' is there twice",
        "models.1.adapters.0: 'other' is there twice",
        "models.2: 'other' is there twice",
        "models.2.adapters.0: 'legal' is there twice",
    ]


def test_aliases_are_names_like_others() -> None:
    text = """
        models:
          - {name: smol, source: x, aliases: [gpt-4o-mini, default], adapters: [{name: legal, source: a}]}
          - {name: other, source: y, aliases: [default, smol, legal]}
    """
    assert problems(text) == [
        "models.0.adapters.0: 'legal' is there twice",
        "models.1.aliases.0: 'default' is there twice",
        "models.1.aliases.1: 'smol' is there twice",
    ]
    many = f"models: [{{name: smol, source: x, aliases: {[f'a{number}' for number in range(MAX_ALIASES + 1)]}}}]"
    assert problems(many) == [f"models.0.aliases: there are {MAX_ALIASES + 1}; a model has {MAX_ALIASES} at most"]


def test_an_adapter_is_a_directory_here_or_on_the_hub() -> None:
    text = """
        models:
          - name: smol
            source: smol.gguf
            adapters:
              - {name: a, source: "pypi:loras==1.0/loras/a"}
              - {name: b, source: "https://example.com/b"}
              - {name: c, source: " "}
              - {name: d, source: "hf:acme/legal@0123456789abcdef0123456789abcdef01234567"}
              - {name: e, source: "hf:acme/legal@0123456789abcdef0123456789abcdef01234567/a.gguf"}
    """
    assert problems(text) == [
        f"models.0.adapters.0.source: nothing is fetched from pypi: addresses; download the adapter and name {KIND}",
        f"models.0.adapters.1.source: nothing is fetched from https: addresses; download the adapter and name {KIND}",
        f"models.0.adapters.2.source: it is empty; name {KIND}",
        "models.0.adapters.4.source: 'hf:acme/legal@0123456789abcdef0123456789abcdef01234567/a.gguf': an adapter is a "
        "directory; name hf:ORG/NAME@COMMIT alone",
    ]


def test_every_field_of_an_adapter_is_checked_at_its_place() -> None:
    text = """
        models:
          - name: smol
            source: smol.gguf
            adapters:
              - {name: "a b", source: x, sha256: ABC}
              - {source: y}
              - {name: c, soruce: z}
              - {name: d, source: w, alpha: 8}
    """
    assert problems(text) == [
        "models.0.adapters.0.name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._/-]{0,95}$'",
        "models.0.adapters.0.sha256: String should match pattern '^[0-9a-f]{64}$'",
        "models.0.adapters.1.name: Field required",
        "models.0.adapters.2.source: Field required",
        "models.0.adapters.2.soruce: unknown key; did you mean 'source'?",
        "models.0.adapters.3.alpha: unknown key; there are: name, source, sha256",
    ]


def test_a_key_of_an_adapter_that_stands_elsewhere_is_told_where_adapters_are() -> None:
    assert problems("adapters: [{name: a, source: x}]") == [
        "adapters: unknown key here; did you mean 'models.0.adapters'?"
    ]


@pytest.mark.parametrize("count", [MAX_ADAPTERS, MAX_ADAPTERS + 1])
def test_a_model_has_a_bounded_number_of_adapters(count: int) -> None:
    adapters = ", ".join(f"{{name: a{number}, source: x}}" for number in range(count))
    text = f"models: [{{name: smol, source: smol.gguf, adapters: [{adapters}]}}]"
    if count == MAX_ADAPTERS:
        assert len(parse_config(text, "ok").models[0].adapters) == 64
    else:
        assert problems(text) == ["models.0.adapters: there are 65; a model has 64 at most"]


def test_what_cannot_have_adapters_says_what_to_do_about_it() -> None:
    adapted = "adapters: [{name: legal, source: x}]"
    text = f"""
        models:
          - {{name: smol, source: smol.gguf, {adapted}}}
          - {{name: dummy, source: smol, load_format: dummy, adapters: [{{name: of-dummy, source: x}}]}}
          - {{name: plain, source: smol.gguf}}
        engine: {{pipeline: auto}}
    """
    assert problems(text) == [
        "models.1.load_format: 'dummy' makes weights up, which adapters cannot change; "
        "leave adapters out, or set it to auto",
        "engine.pipeline: 'auto' cannot run beside adapters (of smol, dummy); set it to off, or leave adapters out",
    ]
    assert parse_config("engine: {pipeline: auto}", "without adapters").engine.pipeline == "auto"


def test_room_for_adapters_has_bounds_and_defaults() -> None:
    (spec,) = parse_config("models: [{name: smol, source: smol, adapter_room: {}}]", "test").models
    assert spec.adapter_room == AdapterRoom(num=4, rank=16)
    assert problems("models: [{name: smol, source: smol, adapter_room: {num: 65, rank: 513}}]") == [
        "models.0.adapter_room.num: Input should be less than or equal to 64",
        "models.0.adapter_room.rank: Input should be less than or equal to 512",
    ]
