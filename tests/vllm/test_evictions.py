"""A real vLLM with `kv: host`: who is evicted comes back with its KV, and nothing of it is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import (
    HandOverImages,
    Image,
    ModelLoaded,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import LOST
from gpu_node.engine.requests.image import Kept
from shared.messages.requests.payload import Constraint
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.nodes import ready, request, write_config, write_plain_config

SHORT = list(range(1000, 1040))
LONG = [7 + number % 100 for number in range(300)]
"""Two whole blocks and a part."""
MAX_TOKENS = 40

WORDS = Constraint("regex", "[a-z]{1,5}( [a-z]{1,5}){99}")
"""More tokens than are drawn."""
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 11, "is_seeded": True},
    {"repetition_penalty": 1.5, "presence_penalty": 2.0, "temperature": 0.7, "seed": 12, "is_seeded": True},
    {"constraint": WORDS, "temperature": 0.7, "seed": 13, "is_seeded": True},
)


class Heard:
    """Of one request: its tokens by choice, and the state behind them."""

    def __init__(self, agent: Agent, name: str) -> None:
        self.agent = agent
        self.name = name
        self.tokens: dict[int, list[int]] = {}
        self.stats: EngineStats | None = None
        self.is_whole = False

    def next(self) -> Any:
        event = self.agent.next()
        if isinstance(event, StepReport):
            self.stats = event.stats
            for chunk in event.chunks:
                assert chunk.request_id == self.name
                tokens = self.tokens.setdefault(chunk.choice, [])
                assert chunk.index == len(tokens), "none is lost and none comes twice"
                tokens += chunk.token_ids
                self.is_whole |= chunk.is_last
        return event

    def to_the_end(self) -> dict[int, list[int]]:
        while not self.is_whole:
            self.next()
        return self.tokens

    @property
    def restored(self) -> int:
        assert self.stats is not None
        return self.stats.counts.restored_tokens

    def evict(self, num_tokens: int) -> Kept:
        """When each choice has so many."""
        while min(map(len, self.tokens.values()), default=0) < num_tokens:
            self.next()
        self.agent.send(TakeOut([self.name]))
        event = self.next()
        while not isinstance(event, TakenOut):
            event = self.next()
        (kept,) = event.requests
        assert isinstance(self.next(), StepReport), "behind all commands that came together"
        return kept


def whole(agent: Agent, prompt: list[int], **way: Any) -> dict[int, list[int]]:
    agent.send(RunAttempt(request("whole", prompt, MAX_TOKENS, **way)))
    return Heard(agent, "whole").to_the_end()


@pytest.mark.parametrize("prompt", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("way", WAYS, ids=["greedy", "seed", "penalties", "constraint"])
def test_nothing_is_computed_again_and_the_tokens_are_the_same(
    agent: Agent, prompt: list[int], way: dict[str, Any]
) -> None:
    wanted = whole(agent, prompt, **way)
    asked = request("e", prompt, MAX_TOKENS, **way)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked))
    kept = heard.evict(5)
    num_known = len(prompt) + len(heard.tokens[0])
    assert kept == Kept("e", num_known - 1), "all but the token that was drawn last"
    before = heard.restored
    agent.send(RunAttempt(asked))
    assert heard.to_the_end() == wanted
    assert heard.restored - before == num_known - 1
    assert heard.stats is not None
    assert heard.stats.counts.evicted.num_refused == 0


def test_a_prompt_that_is_half_computed_leaves_with_that_half(agent: Agent) -> None:
    prompt = [11 + number % 90 for number in range(470)]
    wanted = whole(agent, prompt)
    asked = request("e", [12, *prompt[1:]], MAX_TOKENS)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked), TakeOut(["e"]))
    while not isinstance(heard.next(), TakenOut):
        pass
    agent.send(RunAttempt(asked))
    assert len(heard.to_the_end()[0]) == len(wanted[0]) == MAX_TOKENS


def test_each_choice_comes_back_with_its_own(agent: Agent) -> None:
    way: dict[str, Any] = {"temperature": 1.0, "seed": 5, "is_seeded": True, "num_choices": 2, "num_candidates": 2}
    wanted = whole(agent, SHORT, **way)
    asked = request("e", SHORT, MAX_TOKENS, **way)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked))
    assert heard.evict(4).kv_tokens == sum(len(SHORT) + len(tokens) - 1 for tokens in heard.tokens.values())
    agent.send(RunAttempt(asked))
    assert heard.to_the_end() == wanted


def test_it_lasts_over_a_change_of_the_model(agent: Agent) -> None:
    wanted = whole(agent, LONG)
    asked = request("e", LONG, MAX_TOKENS)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked))
    kept = heard.evict(5)
    before = heard.restored
    for other in ("smol-b", "smol-c"):
        loaded = agent.load(other)
        assert isinstance(loaded, ModelLoaded)
        tiers = loaded.tiers
    assert tiers == {"smol-b": "device", "smol-c": "device"}, "whoever had it has gone"
    assert isinstance(agent.load("smol"), ModelLoaded)
    agent.send(RunAttempt(asked))
    assert heard.to_the_end() == wanted
    assert heard.restored - before == kept.kv_tokens


def test_an_image_goes_on_at_another_node_of_equal_format(
    agent: Agent, smol: Path, vllm_python: Path, tmp_path: Path
) -> None:
    wanted = whole(agent, LONG)
    asked = request("e", LONG, MAX_TOKENS)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked))
    kept = heard.evict(5)
    agent.send(HandOverImages(["e"]))
    image = heard.next()
    while not isinstance(image, Image):
        image = heard.next()
    with ready(write_config(tmp_path, smol, vllm_python), vllm_python) as other:
        assert isinstance(other.load("smol"), ModelLoaded)
        heard.agent = other
        other.send(RunAttempt(asked, image.file))
        assert heard.to_the_end() == wanted
        assert heard.restored == kept.kv_tokens


def test_an_image_of_another_format_gives_the_request_back(
    agent: Agent, smol: Path, vllm_python: Path, tmp_path: Path
) -> None:
    """In bfloat16, as it was not: its next attempt goes on behind its tokens, and nothing of the image is taken."""
    asked = request("e", LONG, MAX_TOKENS)
    heard = Heard(agent, "e")
    agent.send(RunAttempt(asked))
    heard.evict(5)
    agent.send(HandOverImages(["e"]))
    image = heard.next()
    while not isinstance(image, Image):
        image = heard.next()
    rest = request("e", LONG, MAX_TOKENS, output=heard.tokens[0], attempt=1)
    with ready(write_plain_config(tmp_path, smol, vllm_python, "bfloat16"), vllm_python) as other:
        assert isinstance(other.load("smol"), ModelLoaded)
        heard.agent = other
        other.send(RunAttempt(asked, image.file))
        assert [chunk.finish_reason for chunk in other.steps_until_end("e")[-1].chunks] == [LOST]
        other.send(RunAttempt(rest))
        assert len(heard.to_the_end()[0]) == MAX_TOKENS
        assert heard.restored == 0
