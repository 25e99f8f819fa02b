"""The tokens are vLLM's own, and beside our engine's, as near as sums in another order allow."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from gpu_node.engine.process.protocol.protocol import EngineReady, ModelLoaded, RunAttempt, StepReport
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.vllm.nodes import chunks_until_end, ready, request, tokens_of, write_our_config, write_plain_config
from tests.vllm.sizes import KV_BYTES, MAX_MODEL_LEN, STEP_TOKENS

FLAGS = Path("/proc/cpuinfo").read_text().split()
DTYPE = "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(FLAGS) else "float32"
"""The model's own type, where the processor computes with it: else prompts take vLLM five times as long."""
SIZES = {
    "dtype": DTYPE,
    "kv_bytes": KV_BYTES,
    "max_model_len": MAX_MODEL_LEN,
    "max_num_seqs": 16,
    "num_threads": 1,
    "step_tokens": STEP_TOKENS,
}
NUM_PROMPTS, NUM_TOKENS = 20, 25
MIN_AGREEMENT = 0.98
NUM_AT_ONCE = 16


SUBJECTS = (
    "the sea", "Paris", "a triangle", "bread", "the moon", "Shakespeare", "a computer", "winter", "the heart", "gold"
)  # fmt: skip
BEGINNINGS = (
    "The most important thing about {} is",
    "Here are three facts about {}:\n1.",
)


@pytest.fixture(scope="module")
def prompts(smol: Path) -> list[list[int]]:
    """Text as people write it: of made-up ids, the model is sure of nothing."""
    tokenizer = Tokenizer.from_file(str(smol / "tokenizer.json"))
    texts = [beginning.format(subject) for subject in SUBJECTS for beginning in BEGINNINGS]
    assert len(texts) == NUM_PROMPTS
    return [tokenizer.encode(text).ids for text in texts]


@pytest.fixture(scope="module")
def plain(smol: Path, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A process with vLLM as it comes, and the model."""
    with ready(write_plain_config(tmp_path_factory.mktemp("plain"), smol, vllm_python, DTYPE), vllm_python) as agent:
        assert isinstance(agent.load("smol"), ModelLoaded)
        yield agent


@pytest.fixture(scope="module")
def direct(smol: Path, vllm_python: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What vLLM says to each prompt alone, without Treadle."""
    command = [str(vllm_python), "-m", "gpu_node.vllm.installation.direct", str(smol), json.dumps(SIZES)]
    asked = [json.dumps({"prompts": [prompt], "max_tokens": NUM_TOKENS}) for prompt in prompts]
    done = subprocess.run(command, input="\n".join(asked), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ready, *answers = done.stdout.splitlines()
    assert ready == "ready"
    return [json.loads(answer)["tokens"][0] for answer in answers]


def test_alone_each_answer_is_vllm_s_own(plain: Agent, prompts: list[list[int]], direct: list[list[int]]) -> None:
    answers = []
    for number, prompt in enumerate(prompts):
        plain.send(RunAttempt(request(f"p{number}", prompt, NUM_TOKENS)))
        answers.append(tokens_of(chunks_until_end(plain, f"p{number}")))
    assert answers == direct


def test_in_a_batch_nearly_all_tokens_are_the_same(
    plain: Agent, prompts: list[list[int]], direct: list[list[int]]
) -> None:
    wanted = [token for text in direct for token in text]
    assert agreement(likeliest(plain, prompts, direct), wanted) >= MIN_AGREEMENT


def test_beside_our_engine_too(
    agent: Agent, prompts: list[list[int]], direct: list[list[int]], smol: Path, tmp_path: Path
) -> None:
    """Ours in bfloat16 beside vLLM in float32: in bfloat16 vLLM differs more from itself in float32 than ours does."""
    wanted = likeliest(agent, prompts, direct)
    with process_of(write_our_config(tmp_path, smol)) as ours:
        assert isinstance(ours.next(), EngineReady)
        assert isinstance(ours.load("smol"), ModelLoaded)
        assert agreement(likeliest(ours, prompts, direct), wanted) >= MIN_AGREEMENT


def agreement(found: list[int], wanted: list[int]) -> float:
    """Part of the positions."""
    assert len(found) == NUM_PROMPTS * NUM_TOKENS
    return sum(map(int.__eq__, found, wanted)) / len(wanted)


def likeliest(agent: Agent, prompts: list[list[int]], texts: list[list[int]]) -> list[int]:
    """The token that comes next at each position by itself, given the prompt and the text before it."""
    asked = {
        f"{number}.{place}": prompt + text[:place]
        for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True))
        for place in range(len(text))
    }
    names = list(asked)
    found: dict[str, int] = {}
    for first in range(0, len(names), NUM_AT_ONCE):
        batch = names[first : first + NUM_AT_ONCE]
        agent.send(*(RunAttempt(request(name, asked[name], 1)) for name in batch))
        while not found.keys() >= set(batch):
            event = agent.next()
            assert isinstance(event, StepReport)
            found |= {chunk.request_id: chunk.token_ids[0] for chunk in event.chunks}
    return [found[name] for name in names]
