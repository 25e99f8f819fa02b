"""A real vLLM whose model takes adapters while it serves, and lets them go.

Tokens are those of merged models throughout. In float32, as in `tests.vllm.test_adapters`.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from gpu_node.engine.process.protocol.protocol import LoadModel, ModelLoaded, Reset, RunAttempt
from shared.config.engines.adapters import AdapterRoom, AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.adapted import BLOCK_TOKENS, MAX_MODEL_LEN, Adapted, Heard, asked, make_adapted, text
from tests.vllm.nodes import ready
from tests.vllm.test_process import process_named

ROOM = AdapterRoom(num=2, rank=16)
MANY = ("legal", "rhymes", "third", "fourth")
LONG_TOKENS = 300


@dataclass(frozen=True)
class Changing:
    """A process with vLLM, and what its model is told to have."""

    agent: Agent
    model: ModelSpec
    of: Adapted
    known: dict[tuple[object, ...], list[int]] = field(default_factory=dict)
    """What was expected before."""

    def spec(self, *names: str, **others: Path) -> ModelSpec:
        """The model with these adapters; ``others`` lie elsewhere."""
        folders = {name: self.of.folder / name for name in names} | others
        return replace(self.model, adapters=tuple(AdapterSpec(name, str(path)) for name, path in folders.items()))

    def load(self, spec: ModelSpec, heard: Heard | None = None) -> ModelLoaded:
        """What it answers; tokens of others that come meanwhile are ``heard``."""
        heard = heard or Heard(self.agent)
        self.agent.send(LoadModel("smol", spec))
        while not isinstance(event := heard.next(), ModelLoaded):
            pass
        return event

    def expected(self, payload: Payload) -> list[int]:
        asked_for = payload.adapter, *payload.prompt_token_ids, payload.sampling.max_tokens
        if asked_for not in self.known:
            merged = self.of.merged[payload.adapter]
            self.known[asked_for], _ = tiny.greedy(merged, payload.prompt_token_ids, payload.sampling.max_tokens)
        return self.known[asked_for]

    def check(self, names: Sequence[str], num_tokens: int = 12) -> None:
        """One batch of all of them, rows of the model itself between."""
        payloads = [
            asked(name, text(place, 9 + 5 * place), num_tokens, name=f"{place}") for place, name in enumerate(names)
        ]
        assert Heard(self.agent).to_the_end(*payloads) == [self.expected(one) for one in payloads]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    made = make_adapted(tmp_path_factory.mktemp("adapted"))
    for seed, name in enumerate(MANY[2:], 5):
        made.merged[name] = save_adapter(made.merged[""], made.folder / name, ALL, rank=8, seed=seed)
    made.merged["large"] = save_adapter(made.merged[""], made.folder / "large", ALL, rank=24, seed=7)
    return made


def config(adapted: Adapted, python: Path, folder: Path, num_ranks: int = 1) -> Path:
    vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
    node = {"name": "node-0", "engine": "vllm", "tensor_parallel": num_ranks, "vllm": vllm}
    model = {"name": "smol", "source": str(adapted.folder / "plain"), "max_model_len": MAX_MODEL_LEN}
    options = {"kv_cache_bytes": 16 << 20, "max_num_seqs": 16, "step_tokens": 64}
    path = folder / "treadle.yaml"
    path.write_text(yaml.safe_dump({"models": [model], "nodes": [node], "engine": options}))
    return path


def model(adapted: Adapted, room: AdapterRoom | None = ROOM) -> ModelSpec:
    return ModelSpec("smol", str(adapted.folder / "plain"), max_model_len=MAX_MODEL_LEN, adapter_room=room)


@pytest.fixture(scope="module")
def running(adapted: Adapted, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    """Its model began with room for two adapters, and with none."""
    with ready(config(adapted, vllm_python, tmp_path_factory.mktemp("node")), vllm_python) as agent:
        changing = Changing(agent, model(adapted), adapted)
        assert changing.load(changing.spec()).adapters == ()
        yield changing


@pytest.fixture
def changing(running: Changing) -> Changing:
    """Without requests and adapters."""
    running.agent.send(Reset())
    running.agent.next()
    assert running.load(running.spec()).adapters == ()
    return running


def test_an_adapter_comes_and_goes_under_a_stream_of_its_model(changing: Changing) -> None:
    heard = Heard(changing.agent)
    stream, legal = asked("", text(1, 40), LONG_TOKENS), asked("legal", text(2, 30), LONG_TOKENS)
    changing.agent.send(RunAttempt(stream))
    while len(heard.tokens.get(stream.request_id, [])) < 5:
        heard.next()
    assert changing.load(changing.spec("legal"), heard).adapters == ("legal",)
    changing.agent.send(RunAttempt(legal))
    while len(heard.tokens.get(legal.request_id, [])) < 5:
        heard.next()
    assert changing.load(changing.spec("rhymes", "legal"), heard).adapters == ("legal", "rhymes")
    rhymes = asked("rhymes", text(3, 20))
    assert heard.to_the_end(rhymes) == [changing.expected(rhymes)]
    while not heard.ended >= {stream.request_id, legal.request_id}:
        heard.next()
    assert heard.tokens[stream.request_id] == changing.expected(stream)
    assert heard.tokens[legal.request_id] == changing.expected(legal)
    assert changing.load(changing.spec("rhymes")).adapters == ("rhymes",)
    changing.agent.send(RunAttempt(asked("legal", text(4, 9), name="late")))
    (chunk,) = changing.agent.steps_until_end("late")[-1].chunks
    assert chunk.error == "'smol' has no adapter 'legal' at this node"
    assert changing.load(changing.spec("rhymes", "legal")).adapters == ("rhymes", "legal")
    changing.check(["", "legal", "rhymes"])


def test_more_than_compute_in_one_step_take_turns(changing: Changing) -> None:
    assert changing.load(changing.spec(*MANY)).adapters == MANY
    for _ in range(2):
        changing.check(["", *MANY, "", *reversed(MANY)], num_tokens=20)
    changing.check([""] * 3)


def test_one_that_waits_for_a_place_is_not_overtaken_by_those_that_have_one(changing: Changing) -> None:
    """Later requests for the adapter that is through first wait; all others begin at once."""
    changing.load(changing.spec(*MANY))
    heard = Heard(changing.agent)
    first = [asked("legal", text(1, 9), 60, name="legal"), asked("third", text(2, 9), LONG_TOKENS, name="third")]
    changing.agent.send(*map(RunAttempt, first))
    while not heard.tokens.keys() >= {"legal", "third"}:
        heard.next()
    later = [asked(name, text(3, 9), name=f"later {name}") for name in ("rhymes", "legal", "third", "")]
    order: list[str] = []
    changing.agent.send(*map(RunAttempt, later))
    while len(heard.ended) < len(first) + len(later):
        before = set(heard.ended)
        heard.next()
        order += sorted(heard.ended - before)
    assert [name for name in order if "third" not in name] == ["later ", "legal", "later rhymes", "later legal"]
    assert order.index("later third") < order.index("legal")
    assert [heard.tokens[one.request_id] for one in later] == [changing.expected(one) for one in later]


def test_what_comes_back_under_a_name_finds_nothing_of_what_was_there(changing: Changing, tmp_path: Path) -> None:
    """Though its files lie where the others lay, and its request asks the same."""
    for name in ("legal", "rhymes"):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        shutil.copytree(changing.of.folder / name, tmp_path / "one")
        assert changing.load(changing.spec(one=tmp_path / "one")).adapters == ("one",)
        heard, prompt = Heard(changing.agent), text(20, 2 * BLOCK_TOKENS + 9)
        heard.to_the_end(asked("", text(9, 9), 1, name="before"))  # says what was found until now
        for number in range(2):
            before = heard.counts.first_cached_tokens
            payload = asked("one", prompt, name=f"{name} {number}")
            assert heard.to_the_end(payload) == [tiny.greedy(changing.of.merged[name], prompt, 12)[0]]
            assert heard.counts.first_cached_tokens - before == number * 2 * BLOCK_TOKENS
        assert changing.load(changing.spec()).adapters == ()


def test_what_cannot_be_used_says_why_and_the_others_come(changing: Changing, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(changing.of.folder / "legal", torn)
    weights = torn / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    heard, stream = Heard(changing.agent), asked("", text(1, 40), LONG_TOKENS)
    changing.agent.send(RunAttempt(stream))
    others = {"torn": torn, "gone": tmp_path / "gone"}
    loaded = changing.load(changing.spec("narrow", "odd", "rhymes", **others), heard)
    assert loaded.adapters == ("rhymes",)
    problems = {"narrow": ", of a weight of shape (", "odd": "r_proj", "torn": str(weights), "gone": "does not exist"}
    assert loaded.broken_adapters.keys() == problems.keys()
    for name, part in problems.items():
        assert part in loaded.broken_adapters[name]
    while stream.request_id not in heard.ended:
        heard.next()
    assert heard.tokens[stream.request_id] == changing.expected(stream)
    changing.check(["", "rhymes"])


def test_a_larger_one_waits_for_the_last_request_of_its_model_which_then_begins_anew(
    adapted: Adapted, vllm_python: Path, tmp_path: Path
) -> None:
    """Its first adapter likewise; a vLLM that dies ends its process, also where it is asked for an adapter."""
    with ready(config(adapted, vllm_python, tmp_path), vllm_python) as agent:
        changing = Changing(agent, model(adapted, room=None), adapted)
        changing.load(changing.spec())
        for before, new in (("", "legal"), ("legal", "large")):
            heard, stream = Heard(agent), asked(before, text(1, 40), LONG_TOKENS)
            agent.send(RunAttempt(stream))  # and before its first token:
            loaded = changing.load(changing.spec("legal", new), heard)
            assert list(loaded.late_adapters) == [new]
            assert loaded.adapters == tuple(filter(None, [before]))
            while stream.request_id not in heard.ended:
                heard.next()
            assert heard.tokens[stream.request_id] == changing.expected(stream)
            assert new in changing.load(changing.spec("legal", new)).adapters
            changing.check(["", new, "legal"])
        core = process_named(agent.process.pid, "EngineCore")
        core.send_signal(signal.SIGKILL)
        agent.send(LoadModel("smol", changing.spec("legal", "large", "rhymes")))
        assert agent.exit_status() == 1


def test_two_ranks_take_what_comes(adapted: Adapted, vllm_python: Path, tmp_path: Path) -> None:
    with ready(config(adapted, vllm_python, tmp_path, num_ranks=2), vllm_python) as agent:
        changing = Changing(agent, model(adapted), adapted)
        changing.load(changing.spec())
        changing.check([""])
        assert changing.load(changing.spec("odd", *MANY)).adapters == MANY
        changing.check(["", *MANY])
