"""Clients count as `gateway.generation.generation` does: each token once, whatever happens to messages."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.generation.generation import Generation, Verdict
from gateway.openai.answers.delta import Delta
from services.simulator.cluster.clients import ClientOutcome, Clients, prompt
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.devices.device import VOCAB_SIZE
from services.simulator.workloads.request import WorkloadRequest
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.messages.message import Message
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import Attempt, Cancel, Chunk, Rejected, Resubmit, Submit, Tokens

REQUEST = WorkloadRequest(0.0, "m", "interactive", prompt_tokens=5, output_tokens=6)


class Life:
    """One client, and what it sends."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.over: list[ClientOutcome] = []
        self.sent: list[Message] = []
        clients = Clients(self.bus, ClusterConfig(), self.over.append)
        self.bus.listen(lambda _now, stream, message: self.sent.append(message) if stream == streams.QUEUE else None)
        self.outcome = clients.submit(0, REQUEST)

    def hear(self, message: Message) -> None:
        self.bus.send(streams.tokens("clients"), message)
        self.bus.run_until(self.bus.now + 0.5)

    def tokens(self, index: int, num_tokens: int, attempt: int = 0, reason: str = "") -> None:
        chunk = Chunk("0", attempt, index, [0] * num_tokens, reason, is_last=bool(reason))
        self.hear(Tokens(node="n", chunks=[chunk]))

    @property
    def submits(self) -> list[tuple[int, int, int]]:
        return [(one.attempt, one.prompt_tokens, one.max_tokens) for one in self.sent if isinstance(one, Submit)]


def test_an_answer() -> None:
    life = Life()
    assert life.submits == [(0, 5, 1024)]
    life.tokens(0, 1)
    life.tokens(1, 5, reason="stop")
    assert life.over == [life.outcome]
    assert (life.outcome.num_tokens, life.outcome.reason, life.outcome.first_token_s) == (6, "stop", 0.001)
    assert life.bus.payloads == {}


def test_a_lost_answer_goes_on_from_what_is_there() -> None:
    life = Life()
    life.tokens(0, 2)
    life.hear(Resubmit(requests=[Attempt("0", 0)]))
    assert life.submits[1:] == [(1, 7, 1022)]
    assert life.bus.payloads["0"].outputs == [Output([0, 0])]
    life.tokens(2, 1, attempt=0)
    assert life.outcome.num_tokens == 2, "the old attempt counts no more"
    life.tokens(2, 4, attempt=1, reason="stop")
    assert life.over[0].num_tokens == 6


def test_a_gap_asks_again_but_not_for_ever() -> None:
    life = Life()
    for attempt in range(5):
        life.tokens(3, 1, attempt)
    assert [attempt for attempt, _, _ in life.submits] == [0, 1, 2, 3, 4]
    assert life.over[0].reason == "lost"
    assert any(isinstance(message, Cancel) for message in life.sent)


@example([True] * 6)
@given(st.lists(st.booleans(), max_size=12))
def test_who_gave_way_is_not_given_up_for_it(gave_way: list[bool]) -> None:
    life = Life()
    generation = Generation([b"x"], (), Sampling(max_tokens=1024))
    for has_given_way in gave_way:
        life.hear(Resubmit(requests=[Attempt("0", generation.attempt)], gave_way=has_given_way))
        if not has_given_way and not generation.may_try_again():
            assert [outcome.reason for outcome in life.over] == ["lost"]
            return
        generation.begin_attempt(generation.attempt + 1, gave_way=has_given_way)
        assert (life.over, life.outcome.attempt) == ([], generation.attempt)


def test_a_rejection_is_an_end() -> None:
    life = Life()
    life.hear(Rejected(request_id="0", attempt=0, wait_s=30.0, retry_after_s=10.0))
    assert (life.over[0].reason, life.over[0].is_answered) == ("rejected", False)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 2))))
def test_the_same_tokens_count_as_in_the_gateway(chunks: list[tuple[int, int, int]]) -> None:
    life = Life()
    generation = Generation([b"x"], (), Sampling(max_tokens=1024))
    for index, num_tokens, attempt in chunks:
        life.tokens(index, num_tokens, attempt)
        news = generation.accept(Chunk("0", attempt, index, [0] * num_tokens))
        if news is Verdict.GAP:
            generation.begin_attempt(generation.attempt + 1)
        assert isinstance(news, Delta | Verdict)
        assert life.outcome.attempt == generation.attempt
        assert life.outcome.num_tokens == sum(len(output.token_ids) for output in generation.outputs)


def asked(num_tokens: int, *hash_ids: int) -> WorkloadRequest:
    return WorkloadRequest(0.0, "m", "interactive", num_tokens, 1, hash_ids=hash_ids)


def test_no_two_prompts_begin_alike() -> None:
    assert len({tuple(prompt(number, asked(3))) for number in range(5_000)}) == 5_000
    assert [len(prompt(1_234, asked(num_tokens))) for num_tokens in (1, 2, 7)] == [1, 2, 7]


def test_equal_hash_ids_are_equal_tokens() -> None:
    assert prompt(1, asked(517, 7, 2_008)) == [7, 0, 0, 0] * 128 + [8, 2, 0, 0, 8]
    largest = prompt(1, asked(512, 2**32 - 1))
    assert (largest[:4], max(largest) < VOCAB_SIZE) == ([295, 967, 294, 4], True)
