"""What is read of an adapter's folder, and what is refused, with file and key or tensor by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_node.models.adapters.adapter_config import read_adapter_config
from gpu_node.models.adapters.adapters import NO_ADAPTERS, open_adapters
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import ModelFileError
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.models.test_families_models import save


def config_of(folder: Path, **values: Any) -> Any:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16} | values))
    return read_adapter_config(folder)


def test_scales_are_alpha_over_the_rank_or_over_its_root(tmp_path: Path) -> None:
    assert config_of(tmp_path).scale_of("model.layers.0.self_attn.q_proj") == 2.0
    assert config_of(tmp_path, r=16, use_rslora=True).scale_of("q_proj") == 4.0


def test_patterns_are_for_modules_whose_names_end_so(tmp_path: Path) -> None:
    config = config_of(tmp_path, rank_pattern={"q_proj": 4, "layers.1.mlp.*": 2}, alpha_pattern={"o_proj": 4})
    ranks = [
        config.rank_of(f"model.layers.{name}") for name in ("0.self_attn.q_proj", "1.mlp.up_proj", "0.mlp.up_proj")
    ]
    assert ranks == [4, 2, 8]
    assert config.rank_of("model.layers.0.not_q_proj") == 8
    assert [config.scale_of(f"a.{name}") for name in ("q_proj", "o_proj", "k_proj")] == [4.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only LORA is supported"),
        ({"use_dora": True}, "use_dora is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is not supported"),
        ({"bias": "all"}, "bias is 'all'; only adapters that leave biases alone are supported"),
        ({"r": 0}, "r is 0, expected a positive int"),
        ({"r": 4096}, "r is 4096, expected 512 at most"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much', expected a positive float"),
        ({"rank_pattern": {"q_proj": 1.5}}, "q_proj is 1.5, expected a positive int"),
        ({"rank_pattern": ["q_proj"]}, "rank_pattern is no mapping of modules to numbers"),
        ({"alpha_pattern": {"(": 2}}, r"alpha_pattern: '\(' is no regular expression"),
        ({"alpha_pattern": {"(?i)q_proj": 2}}, r"alpha_pattern: '\(\?i\)q_proj' is no regular expression of an end"),
        ({"rank_pattern": {"q{99999999999}": 2}}, r"rank_pattern: 'q\{9+\}' is no regular expression"),
        ({"rank_pattern": {"(" * 9999 + ")" * 9999: 2}}, "rank_pattern: .* is no regular expression"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4', which changes the model's own"),
        ({"init_lora_weights": "OLoRA"}, "init_lora_weights is 'OLoRA', which changes the model's own"),
    ],
)
def test_what_would_give_other_numbers_is_refused_by_key(tmp_path: Path, values: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelFileError, match=text):
        config_of(tmp_path, **values)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    path = tmp_path_factory.mktemp("model")
    return save("llama", path), path


def opened(model_path: Path, *folders: Path) -> Any:
    adapters = tuple(AdapterSpec(folder.name, str(folder)) for folder in folders)
    spec = ModelSpec(name="tiny", source=str(model_path), adapters=adapters)
    checkpoint = open_checkpoint(model_path)
    return open_adapters(spec, checkpoint, build_program(checkpoint.config))


def test_stacks_have_zeros_where_an_adapter_has_less(model: tuple[Any, Path], tmp_path: Path) -> None:
    save_adapter(model[0], tmp_path / "wide", ["q_proj", "up_proj"], rank=3, alpha=6.0, dtype=torch.bfloat16)
    save_adapter(model[0], tmp_path / "narrow", ["q_proj"], rank=2, alpha=1.0)
    adapters = opened(model[1], tmp_path / "wide", tmp_path / "narrow")
    assert adapters.names == ("wide", "narrow")
    assert adapters.ranks == {f"layers.{layer}.{name}": 3 for layer in range(2) for name in ("q", "up")}
    tensors = [load_file(tmp_path / name / "adapter_model.safetensors") for name in ("wide", "narrow")]
    module = "base_model.model.model.layers.1.self_attn.q_proj"
    a, b = adapters.read("layers.1.q.lora_a"), adapters.read("layers.1.q.lora_b")
    assert (a.shape, b.shape) == ((2, 3, 32), (2, 32, 3))
    np.testing.assert_array_equal(a[0], tensors[0][f"{module}.lora_A.weight"].float())
    np.testing.assert_array_equal(a[1], np.pad(tensors[1][f"{module}.lora_A.weight"], ((0, 1), (0, 0))))
    np.testing.assert_array_equal(b[0], 2.0 * tensors[0][f"{module}.lora_B.weight"].float())
    np.testing.assert_array_equal(b[1], np.pad(0.5 * tensors[1][f"{module}.lora_B.weight"], ((0, 0), (0, 1))))
    np.testing.assert_array_equal(adapters.read("layers.0.up.lora_b")[1], 0.0)


def test_files_of_the_bare_model_leave_the_prefix_out(model: tuple[Any, Path], tmp_path: Path) -> None:
    save_adapter(model[0], tmp_path / "one", ["q_proj"])
    file = tmp_path / "one" / "adapter_model.safetensors"
    save_file({name.replace("model.model.", "model."): values for name, values in load_file(file).items()}, file)
    assert set(opened(model[1], tmp_path / "one").ranks) == {"layers.0.q", "layers.1.q"}


def test_a_model_without_adapters_opens_none(model: tuple[Any, Path]) -> None:
    assert opened(model[1]) is NO_ADAPTERS


def dropped(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values for name, values in tensors.items() if "layers.1.self_attn.q_proj.lora_B" not in name}


def head_too(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return tensors | {"base_model.model.lm_head.lora_A.weight": torch.ones(4, 32)}


def integers(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values.to(torch.int32) for name, values in tensors.items()}


def turned(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values.T.contiguous() for name, values in tensors.items()}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (dropped, "tensor base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight is missing"),
        (
            head_too,
            "cannot be adapted here: base_model.model.lm_head.lora_A.weight; these can.*: down, gate, k, o, q, up, v",
        ),
        (integers, "lora_A.weight is of type I32"),
        (turned, r"lora_A.weight has shape \(32, 4\), expected \(4, 32\)"),
        (lambda _: {"x": torch.ones(1)}, "cannot be adapted here: x"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    model: tuple[Any, Path], tmp_path: Path, change: Callable[..., Any], text: str
) -> None:
    save_adapter(model[0], tmp_path / "one", ["q_proj"])
    file = tmp_path / "one" / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)
    with pytest.raises(ModelFileError, match=text):
        opened(model[1], tmp_path / "one")


def test_all_adapters_that_cannot_be_used_are_told_at_once(model: tuple[Any, Path], tmp_path: Path) -> None:
    save_adapter(model[0], tmp_path / "good", ALL)
    for name in ("empty", "pickled", "torn"):
        (tmp_path / name).mkdir()
    (tmp_path / "pickled" / "adapter_model.bin").write_bytes(b"")
    (tmp_path / "torn" / "adapter_config.json").write_text("{}")
    (tmp_path / "torn" / "adapter_model.safetensors").write_bytes(b"\\x10")
    with pytest.raises(ModelFileError) as told:
        opened(model[1], *(tmp_path / name for name in ("good", "empty", "pickled", "torn")))
    lines = str(told.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"adapter {name!r}" for name in ("empty", "pickled", "torn")]
    assert "holds no adapter_model.safetensors" in lines[0]
    assert "is a pickle" in lines[1]
    assert "is no readable safetensors file" in lines[2]
