"""One request with several choices: what of each is new, and when all of it is over."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.generation.choice import Choice
from gateway.generation.generation import Generation, Verdict
from gateway.generation.stop_strings import StopPattern
from gateway.openai.answers.answers import FinishReason
from gateway.openai.answers.delta import Delta, Failure, merged
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import Chunk
from tests.gateway.tiny import ids

BYTES = [bytes([byte]) for byte in range(256)]


def generation(num_choices: int = 2, *, stops: list[str] | None = None, first_choice: int = 0) -> Generation:
    return Generation(
        BYTES, [StopPattern(one) for one in stops or []], Sampling(max_tokens=99, num_choices=num_choices), first_choice
    )


def chunk(
    choice: int, index: int, text: str, finish_reason: str = "", *, attempt: int = 0, is_last: bool = False
) -> Chunk:
    return Chunk("r", attempt, index, ids(text), finish_reason, choice=choice, is_last=is_last)


def test_choices_are_counted_apart() -> None:
    answer = generation()
    assert answer.accept(chunk(0, 0, "ab")) == Delta("ab", 2, choice=0)
    assert answer.accept(chunk(1, 0, "xyz")) == Delta("xyz", 3, choice=1)
    assert answer.accept(chunk(0, 2, "c")) == Delta("c", 1, choice=0)
    assert answer.accept(chunk(1, 2, "z")) is Verdict.IGNORED
    assert answer.accept(chunk(1, 4, "!")) is Verdict.GAP
    assert answer.outputs == [Output(ids("abc")), Output(ids("xyz"))]


NEVER = "\ud800"  # no UTF-8 gives it, so nothing is held back for it


@given(
    pieces=st.lists(st.lists(st.integers(0, 255), max_size=4), max_size=6),
    max_tokens=st.integers(1, 12),
    finish_reason=st.sampled_from([None, "stop", "length"]),
)
@example(pieces=[[0xF0, 0x9F], [0xA7, 0xB5]], max_tokens=3, finish_reason=None)
@example(pieces=[[0xF0], [0x9F]], max_tokens=2, finish_reason="stop")
def test_watched_for_what_never_comes_an_answer_is_the_plain_one(
    pieces: list[list[int]], max_tokens: int, finish_reason: FinishReason | None
) -> None:
    plain, watched = (Choice(0, BYTES, stops, Sampling(max_tokens=max_tokens)) for stops in ([], [StopPattern(NEVER)]))
    for number, piece in enumerate(pieces, 1):
        reason = finish_reason if number == len(pieces) else None
        assert plain.take(piece, [], reason) == watched.take(piece, [], reason)
        assert plain.output == watched.output
        if plain.finish_reason:
            break


def test_it_is_over_when_all_choices_are() -> None:
    answer = generation()
    answer.accept(chunk(1, 0, "x"))
    assert answer.accept(chunk(0, 0, "a", "stop")) == Delta("a", 1, "stop", choice=0)
    assert not answer.is_over
    assert answer.accept(chunk(1, 1, "y", "length", is_last=True)) == Delta("y", 1, "length", choice=1)
    assert answer.is_over
    assert answer.ended_by_node


def test_a_stop_string_ends_its_choice_only_and_the_node_is_told_in_the_end() -> None:
    answer = generation(stops=["."])
    assert answer.accept(chunk(0, 0, "a.b")) == Delta("a", 2, "stop", choice=0, stop_string=".")
    assert answer.accept(chunk(0, 3, "cd")) is Verdict.IGNORED
    assert answer.accept(chunk(1, 0, "x")) == Delta("x", 1, choice=1)
    assert answer.accept(chunk(1, 1, "y.")) == Delta("y", 2, "stop", choice=1, stop_string=".")
    assert answer.is_over
    assert not answer.ended_by_node


def test_a_node_that_ends_last_needs_not_be_told() -> None:
    answer = generation(stops=["."])
    answer.accept(chunk(0, 0, "."))
    answer.accept(chunk(0, 1, "ab", "length"))
    answer.accept(chunk(1, 0, "x", "length", is_last=True))
    assert answer.ended_by_node


def test_the_last_chunk_while_another_choice_has_not_ended_is_a_gap() -> None:
    answer = generation()
    answer.accept(chunk(0, 0, "a"))
    assert answer.accept(chunk(1, 0, "x", "stop", is_last=True)) is Verdict.GAP
    assert answer.outputs == [Output(ids("a")), Output()]


def test_the_next_attempt_is_told_of_every_choice_and_goes_on_with_those_that_run() -> None:
    answer = generation(3)
    assert answer.outputs == []
    answer.accept(chunk(0, 0, "a", "stop"))
    answer.accept(chunk(1, 0, "xy"))
    assert answer.outputs == [Output(ids("a"), "stop"), Output(ids("xy")), Output()]
    answer.begin_attempt(1)
    assert answer.accept(chunk(1, 1, "yz", attempt=1)) == Delta("z", 1, choice=1)
    assert answer.accept(chunk(2, 0, "", "stop", attempt=1)) == Delta("", 0, "stop", choice=2)
    assert answer.accept(chunk(1, 3, "", "length", attempt=1, is_last=True)) == Delta("", 0, "length", choice=1)
    assert answer.is_over


def test_an_error_ends_all_choices() -> None:
    answer = generation()
    answer.accept(chunk(0, 0, "a"))
    assert answer.accept(chunk(1, 0, "", "error", is_last=True)) is Failure.ENGINE
    assert answer.is_over
    assert answer.accept(chunk(0, 1, "b")) is Verdict.IGNORED


def test_what_a_node_must_not_send_is_a_failure_and_the_node_is_told() -> None:
    for wrong in (chunk(2, 0, "a"), chunk(-1, 0, "a"), chunk(0, 0, "a", is_last=True), chunk(0, 0, "a", "bored")):
        answer = generation()
        assert answer.accept(wrong) is Failure.ENGINE
        assert answer.is_over
    assert not answer.ended_by_node


def test_choices_of_a_later_prompt_are_numbered_on() -> None:
    answer = generation(first_choice=4)
    assert answer.accept(chunk(1, 0, "a")) == Delta("a", 1, choice=5)


def test_deltas_of_a_choice_are_merged_in_their_order() -> None:
    deltas = [Delta("x", 1, choice=1), Delta("a", 1), Delta("y", 2, "stop", choice=1, stop_string="z")]
    deltas.append(Delta("b", 1))
    assert merged(deltas) == [Delta("ab", 2), Delta("xy", 3, "stop", choice=1, stop_string="z")]
    assert merged([]) == []


class Node:
    """Runs one attempt: goes on with each choice from what the client has of it."""

    def __init__(self, texts: list[str], answer: Generation) -> None:
        told = answer.outputs or [Output()] * len(texts)
        self.texts = texts
        self.attempt = answer.attempt
        self.num_sent = [len(output.token_ids) for output in told]
        self.running = {choice for choice, output in enumerate(told) if not output.finish_reason}

    def go_on(self, choice: int, num_tokens: int) -> Chunk:
        start = self.num_sent[choice]
        self.num_sent[choice] = end = min(start + num_tokens, len(ids(self.texts[choice])))
        if end == len(ids(self.texts[choice])):
            self.running.discard(choice)
        return self.chunk(choice, start, end)

    def repeat(self, choice: int, num_tokens: int) -> Chunk:
        end = self.num_sent[choice]
        return self.chunk(choice, max(end - num_tokens, 0), end)

    def chunk(self, choice: int, start: int, end: int) -> Chunk:
        token_ids = ids(self.texts[choice])[start:end]
        reason = "" if choice in self.running else "stop"
        return Chunk("r", self.attempt, start, token_ids, reason, choice=choice, is_last=not self.running)


EVENTS = st.lists(st.tuples(st.sampled_from(["go on", "repeat", "lost"]), st.integers(0, 3), st.integers(1, 8)))


@given(texts=st.lists(st.text(max_size=4), min_size=1, max_size=4), events=EVENTS)
def test_every_token_of_every_choice_counts_once_whatever_is_doubled_or_lost(
    texts: list[str], events: list[tuple[str, int, int]]
) -> None:
    answer = generation(len(texts))
    node = Node(texts, answer)
    deltas = []
    for kind, number, num_tokens in [*events, *(("go on", choice, 99) for choice in range(len(texts)))]:
        choice = number % len(texts)
        if kind == "lost" and answer.may_try_again():
            answer.begin_attempt(answer.attempt + 1)
            node = Node(texts, answer)
        else:
            news = answer.accept((node.repeat if kind == "repeat" else node.go_on)(choice, num_tokens))
            deltas += [news] if isinstance(news, Delta) else []
            assert isinstance(news, Delta) or news is Verdict.IGNORED
        assert [output.token_ids for output in answer.outputs or [Output()] * len(texts)] == [
            ids(text)[:num_sent] for text, num_sent in zip(texts, node.num_sent, strict=True)
        ]
    assert answer.is_over
    assert answer.ended_by_node
    assert [delta.text for delta in merged(deltas)] == texts
    assert answer.outputs == [Output(ids(text), "stop") for text in texts]
