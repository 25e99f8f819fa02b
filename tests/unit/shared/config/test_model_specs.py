"""Models of a process while the file changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.config.config import ClusterConfig, ConfigError
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs

A = ModelSpec(name="a", source="a.gguf")
B = ModelSpec(name="b", source="b.gguf")


def config(*models: ModelSpec) -> ClusterConfig:
    return ClusterConfig.model_validate({"models": list(models)})


def test_adapters_are_those_that_are_asked_for() -> None:
    legal = AdapterSpec("legal", "folders/legal")
    specs = ModelSpecs(config(replace(A, adapters=(legal,))))
    assert specs.spec("a").adapters == (legal,)
    assert specs.spec("a", ()).adapters == ()
    other = AdapterSpec("other", "folders/other")
    assert specs.spec("a", [other, legal]) == replace(A, adapters=(other, legal))


def test_a_model_that_is_unknown_is_looked_for_in_the_file_and_is_from_then_on_what_it_was_there() -> None:
    files = [config(A), config(A, B), config(A, replace(B, source="other.gguf"))]
    specs = ModelSpecs(config(A), lambda: files.pop(0))
    with pytest.raises(KeyError):
        specs.spec("b")
    assert specs.spec("b") == B
    assert specs.spec("b") == B
    assert len(files) == 1, "nothing is read that is known"


def test_a_model_that_is_known_needs_no_file() -> None:
    def read() -> ClusterConfig:
        raise ConfigError("cluster.yaml: not valid YAML")

    specs = ModelSpecs(config(A), read)
    assert specs.spec("a") == A
    with pytest.raises(ConfigError, match="not valid YAML"):
        specs.spec("b")
