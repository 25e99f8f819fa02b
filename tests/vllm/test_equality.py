"""The tokens are vLLM's own, and beside our engine's, as near as sums in another order allow."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from gpu_node.engine.process.protocol import EngineReady, ModelLoaded, RunAttempt, StepReport
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.vllm.nodes import ROOT, chunks_until_end, request, tokens_of, write_our_config

NUM_PROMPTS, NUM_TOKENS = 50, 40
MIN_AGREEMENT = 0.98
NUM_AT_ONCE = 10


def prompts() -> list[list[int]]:
    """Runs of neighbouring ids of the vocabulary, of 8 to 40 tokens."""
    chance = random.Random(7)
    starts = [chance.randrange(1_000, 40_000) for _ in range(NUM_PROMPTS)]
    return [[start + step for step in range(chance.randint(8, 40))] for start in starts]


@pytest.fixture(scope="module")
def direct(smol: Path, vllm_python: Path) -> list[list[int]]:
    """What vLLM says to each prompt alone, without Treadle."""
    command = [str(vllm_python), str(Path(__file__).with_name("direct.py")), str(smol), str(NUM_TOKENS)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'gpu-node'}"}
    done = subprocess.run(
        command, input=json.dumps(prompts()), env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_alone_each_answer_is_vllm_s_own(agent: Agent, direct: list[list[int]]) -> None:
    answers = []
    for number, prompt in enumerate(prompts()):
        agent.send(RunAttempt(request(f"p{number}", prompt, NUM_TOKENS)))
        answers.append(tokens_of(chunks_until_end(agent, f"p{number}")))
    assert answers == direct


def test_in_a_batch_nearly_all_tokens_are_the_same(agent: Agent, direct: list[list[int]]) -> None:
    """Each position by itself: given the tokens before it, which comes next."""
    assert agreement(agent, direct) >= MIN_AGREEMENT


def test_beside_our_engine_too(direct: list[list[int]], smol: Path, tmp_path: Path) -> None:
    with process_of(write_our_config(tmp_path, smol)) as ours:
        assert isinstance(ours.next(), EngineReady)
        assert isinstance(ours.load("smol"), ModelLoaded)
        assert agreement(ours, direct) >= MIN_AGREEMENT


def agreement(agent: Agent, texts: list[list[int]]) -> float:
    """Part of the positions at which the likeliest token is that of the text, which is the prompt up to there."""
    asked = {
        f"{number}.{place}": (prompt + text[:place], text[place])
        for number, (prompt, text) in enumerate(zip(prompts(), texts, strict=True))
        for place in range(len(text))
    }
    assert len(asked) == NUM_PROMPTS * NUM_TOKENS
    names = list(asked)
    found: dict[str, int] = {}
    for first in range(0, len(names), NUM_AT_ONCE):
        batch = names[first : first + NUM_AT_ONCE]
        agent.send(*(RunAttempt(request(name, asked[name][0], 1)) for name in batch))
        while not found.keys() >= set(batch):
            event = agent.next()
            assert isinstance(event, StepReport)
            found |= {chunk.request_id: chunk.token_ids[0] for chunk in event.chunks}
    return sum(found[name] == wanted for name, (_, wanted) in asked.items()) / len(asked)
