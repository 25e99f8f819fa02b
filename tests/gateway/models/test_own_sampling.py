"""How tokens are drawn where a request does not say: as configured, else as the model's files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.models.models import load_models
from gateway.models.own_sampling import GGUF_NAMES, own_sampling
from shared.config.config import ClusterConfig
from shared.config.engines.sampling import NO_SAMPLING, SamplingDefaults
from shared.files.model_file import ModelFileError
from shared.vocabulary.model_fields import ModelFields
from tests.gateway.hf_tiny import write_directory


def of_directory(path: Path, generation: dict[str, Any] | None, **configured: Any) -> SamplingDefaults:
    source = write_directory(path / "hf", generation_config=generation)
    spec = {"name": "m", "source": str(source), "sampling": configured}
    return load_models(ClusterConfig.model_validate({"models": [spec]}))["m"].sampling


def test_a_directory_s_generation_config_says(tmp_path: Path) -> None:
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "eos_token_id": 2}
    found = of_directory(tmp_path, generation | {"repetition_penalty": 1.05, "max_length": 20})
    assert found == SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.0, repetition_penalty=1.05)


def test_configuration_goes_before_it_field_by_field(tmp_path: Path) -> None:
    generation = {"temperature": 0.6, "top_k": 20, "top_p": 7}
    found = of_directory(tmp_path, generation, temperature=0.0, top_p=0.9, presence_penalty=1.5)
    assert found == SamplingDefaults(temperature=0.0, top_k=20, top_p=0.9, presence_penalty=1.5)


def test_minus_one_keeps_all(tmp_path: Path) -> None:
    assert of_directory(tmp_path, {"top_k": -1}) == SamplingDefaults(top_k=0)


@pytest.mark.parametrize("generation", [None, {}, {"temperature": None, "eos_token_id": 2}])
def test_files_that_say_nothing_leave_openai_s_defaults(tmp_path: Path, generation: dict[str, Any] | None) -> None:
    assert of_directory(tmp_path, generation) == NO_SAMPLING


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        ({"temperature": 3}, "temperature is 3: .*less than or equal to 2; set sampling.temperature of the model"),
        ({"top_p": 0.0}, "top_p is 0.0: .*greater than or equal to 0.000001; set sampling.top_p of the model"),
        ({"top_k": "many"}, "top_k is 'many': .*valid integer; set sampling.top_k of the model"),
        ({"min_p": True}, "min_p is True: .*valid number; set sampling.min_p of the model"),
    ],
)
def test_what_cannot_be_is_told_with_what_to_set_instead(
    tmp_path: Path, generation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelFileError, match=f"generation_config.json: {words}"):
        of_directory(tmp_path, generation)


def test_a_gguf_file_has_names_of_its_own() -> None:
    values = {"general.sampling.temp": 0.5, "general.sampling.top_k": 40, "general.sampling.penalty_repeat": 1.25}
    file = ModelFields({**values, "temperature": 0.1}, Path("m.gguf"))
    found = own_sampling(NO_SAMPLING, file, GGUF_NAMES)
    assert found == SamplingDefaults(temperature=0.5, top_k=40, repetition_penalty=1.25)
