"""GGUF files of all families that have an architecture there compute what `transformers` computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import Family, Rope
from shared.config.engines.engine import EngineOptions
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.executors.cpu.test_cpu_executor import TOLERANCE, part, spec
from tests.gpu_node.gguf_files import experts_apart, tensors_of, write_gguf
from tests.gpu_node.logits import logits_by
from tests.gpu_node.models.test_families_models import save

pytestmark = pytest.mark.slow

NUM_TOKENS = 20
TEXTS = [list(range(10, 31)), [7], list(range(50, 58))]
NAMES = ["llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2"]
PARTICULARS: dict[str, dict[str, Any]] = {"mistral": {"attention__sliding_window": 6}}


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A file with weights that bfloat16 holds without loss, and the model of `transformers`."""
    directory = tmp_path_factory.mktemp(request.param)
    model = save(request.param, directory)
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.bfloat16())
    model.save_pretrained(directory)
    path = write_gguf(directory / "model.gguf", directory, **PARTICULARS.get(request.param, {}))
    return path, model


def check(path: Path, model: Any) -> None:
    """Greedy tokens of a batch in chunks, by the reference executor, are those of `transformers`."""
    engine = tiny.make_engine(path, block_size=4, step_tokens=9, kv_cache_bytes=2 << 20)
    outputs = tiny.run(engine, [tiny.request(str(number), text, NUM_TOKENS) for number, text in enumerate(TEXTS)])
    assert outputs == [tiny.greedy(model, text, NUM_TOKENS)[0] for text in TEXTS]


def logits_of(model: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


def choices_are_clear(model: Any, token_ids: list[int]) -> torch.Tensor:
    """For each token, whether rounding cannot make a router choose another expert; bool [tokens]."""
    clear = torch.ones(len(token_ids), dtype=torch.bool)
    if model.config.model_type == "mixtral":
        with torch.inference_mode():
            routers = model(torch.tensor([token_ids]), output_router_logits=True).router_logits
        num_chosen = model.config.num_experts_per_tok
        for scores in routers:
            ordered = scores.sort(dim=-1, descending=True).values
            clear &= ordered[:, num_chosen - 1] - ordered[:, num_chosen] > TOLERANCE
    return clear


def logits_of_texts(executor: ReferenceExecutor | CpuExecutor) -> torch.Tensor:
    with torch.inference_mode():
        return logits_by(executor, [part(text, 0, [2 * n, 2 * n + 1], n) for n, text in enumerate(TEXTS)])


def test_tokens_and_logits_of_the_reference(case: tuple[Path, Any]) -> None:
    path, model = case
    check(path, model)
    executor = ReferenceExecutor(EngineOptions(kv_cache_bytes=2 << 20))
    executor.load_model(spec(path))
    expected = torch.stack([logits_of(model, text)[-1] for text in TEXTS])
    torch.testing.assert_close(logits_of_texts(executor), expected, rtol=2e-4, atol=2e-4)


def test_tokens_and_logits_of_the_cpu_device(case: tuple[Path, Any]) -> None:
    """Tokens up to near-ties of logits or experts: each is as likely, after those before, as the most likely one."""
    path, model = case
    options = EngineOptions(kv_cache_bytes=2 << 20)
    executor = CpuExecutor(options, 1)
    engine = Engine(executor, options)
    engine.load_model(spec(path))
    expected = torch.stack([logits_of(model, text)[-1] for text in TEXTS])
    assert float((logits_of_texts(executor) - expected).norm() / expected.norm()) < TOLERANCE
    outputs = tiny.run(engine, [tiny.request(str(number), text, NUM_TOKENS) for number, text in enumerate(TEXTS)])
    for text, output in zip(TEXTS, outputs, strict=True):
        logits = logits_of(model, [*text, *output[:-1]])[len(text) - 1 :]
        behind = logits.max(dim=-1).values - logits[torch.arange(NUM_TOKENS), torch.tensor(output)]
        clear = choices_are_clear(model, [*text, *output[:-1]])[len(text) - 1 :]
        assert int(clear.sum()) >= NUM_TOKENS - 2
        assert float(behind[clear].max()) < TOLERANCE * float(logits.std()) * 4
    executor.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_is_that_of_the_directory(name: str, tmp_path: Path) -> None:
    """But for the end of a text, which belongs to the tokenizer; a float32 holds an epsilon less exactly than JSON."""
    save(name, tmp_path)
    path = write_gguf(tmp_path / "a.gguf", tmp_path, **PARTICULARS.get(name, {}))
    ours, theirs = open_checkpoint(path).config, open_checkpoint(tmp_path).config
    assert ours.family is (Family.LLAMA if name == "mistral" else Family(name))
    for key in theirs.__slots__:
        if key not in ("family", "eos_token_ids", "norm_epsilon"):
            assert getattr(ours, key) == getattr(theirs, key), key
    assert ours.norm_epsilon == float(np.float32(theirs.norm_epsilon))


@pytest.mark.parametrize("name", ["mixtral", "gpt2"])
def test_a_head_of_its_own_and_the_embedding_as_head(name: str, tmp_path: Path) -> None:
    for tied in (False, True):
        directory = tmp_path / f"{tied}"
        model = save(name, directory, tie_word_embeddings=tied)
        path = write_gguf(directory / "a.gguf", directory)
        assert open_checkpoint(path).config.tied_embedding is tied
        check(path, model)


def test_experts_may_be_tensors_of_their_own(tmp_path: Path) -> None:
    model = save("mixtral", tmp_path / "hf")
    apart = experts_apart(tensors_of(tmp_path / "hf"))
    assert "blk.1.ffn_down.4.weight" in apart
    check(write_gguf(tmp_path / "a.gguf", tmp_path / "hf", tensors=apart), model)


def test_llama_3_whose_file_holds_the_factors_of_its_rotary_embedding(tmp_path: Path) -> None:
    model = save("llama-llama3", tmp_path / "hf")
    rope = open_checkpoint(tmp_path / "hf").config.rope
    assert rope is not None
    factors = np.array(rope.factors, dtype=np.float32)
    tensors = tensors_of(tmp_path / "hf") | {"rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "a.gguf", tmp_path / "hf", tensors=tensors)
    assert open_checkpoint(path).config.rope == Rope(rope.theta, tuple(map(float, factors)))
    check(path, model)
    for wrong in (factors[:-1], factors.astype(np.float16), -factors):
        tensors["rope_freqs.weight"] = wrong
        path = write_gguf(tmp_path / "b.gguf", tmp_path / "hf", tensors=tensors)
        with pytest.raises(ModelFileError, match=r"b\.gguf: tensor rope_freqs\.weight does not hold one positive"):
            open_checkpoint(path)
    tensors["rope_freqs.weight"] = factors
    path = write_gguf(tmp_path / "c.gguf", tmp_path / "hf", tensors=tensors, rope__scaling__factor=2.0)
    with pytest.raises(ModelFileError, match=r"c\.gguf: tensor rope_freqs\.weight beside a linear scaling of 2\.0"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
        {"rope__scaling__factor": 4.0},
        {"rope__scale_linear": 4.0},
    ],
)
def test_linear_scaling_is_in_the_metadata(scaling: dict[str, Any], tmp_path: Path) -> None:
    model = save("llama-linear", tmp_path / "hf")
    check(write_gguf(tmp_path / "a.gguf", tmp_path / "hf", **scaling), model)


def test_scaling_of_type_none_is_none(tmp_path: Path) -> None:
    save("llama", tmp_path)
    path = write_gguf(tmp_path / "a.gguf", tmp_path, rope__scaling__type="none", rope__scaling__factor=4.0)
    assert open_checkpoint(path).config.rope == Rope(10_000.0)
