"""Reports of steps: whatever an answer's size, each of its frames can be sent."""

from __future__ import annotations

from collections import deque
from itertools import chain

from gpu_node.engine.process.commands.commands import Commands
from gpu_node.engine.process.commands.reports import PIECE_TOKENS, reports
from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.protocol import EngineEvent, RunAttempt, StepReport
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import SerialisedImage
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Chunk
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.engine.process.commands.test_commands import InOnePiece, engine

LOGPROB = TokenLogprob(-1.5, [(100_000 + token, -1.5 - token) for token in range(20)])


def ranked(choice: int, num_tokens: int, *, is_last: bool) -> OutputChunk:
    """One choice of a ranked request, as all of them are told at its end."""
    cached = 3 if choice == 0 else None
    tokens = list(range(num_tokens))
    return OutputChunk("r", 1, 0, tokens, "stop", "", choice, [LOGPROB] * num_tokens, is_last, cached)


def heard(told: list[EngineEvent]) -> list[Chunk]:
    """Through the frames."""
    decoder = event_decoder()
    events = chain.from_iterable(decoder.feed(frame(event)) for event in told)
    return [chunk for event in events if isinstance(event, StepReport) for chunk in event.chunks]


def test_a_small_step_is_one_report_and_so_is_none() -> None:
    stats = engine().stats()
    chunks = [OutputChunk("a", 0, 0, [1]), OutputChunk("b", 0, 5, [2], "length", is_last=True)]
    assert reports(chunks, stats) == [StepReport.of(chunks, stats)]
    assert reports([], stats) == [StepReport([], stats)]


class Ranked(Commands):
    """An engine's answer to a request is there at once, and 20 MB long: 8 choices of 8191 tokens with 20 logprobs."""

    def add(self, payload: Payload, image: SerialisedImage | None) -> list[OutputChunk]:
        return [ranked(choice, 2 * PIECE_TOKENS - 1, is_last=choice == 7) for choice in range(8)]


def test_a_ranked_answer_larger_than_a_frame_is_told_in_pieces_that_make_it_up() -> None:
    told: list[EngineEvent] = []
    commands = Ranked(engine(), told.append, InOnePiece(told.append))
    payload = Payload("r", 1, "g", "m", [1], Sampling(max_tokens=8191, num_choices=8, num_candidates=16))
    assert carried_out_by(commands, RunAttempt(payload))
    chunks = heard(told)
    outputs: dict[int, list[int]] = {}
    for chunk in chunks:
        output = outputs.setdefault(chunk.choice, [])
        assert chunk.index == len(output), "in order, and nothing twice"
        assert chunk.logprobs == [LOGPROB] * len(chunk.token_ids)
        output += chunk.token_ids
        assert chunk.finish_reason == ("stop" if len(output) == 8191 else "")
    assert outputs == {choice: list(range(8191)) for choice in range(8)}
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.cached_tokens for chunk in chunks if chunk.cached_tokens is not None] == [3]


def carried_out_by(commands: Commands, command: RunAttempt) -> bool:
    own = commands.carry_out(deque([command]))
    commands.report()
    return own is None


def test_a_step_of_many_embeddings_is_told_in_several_reports() -> None:
    chunks = [OutputChunk(f"r{i}", 0, 0, [], "stop", is_last=True, embedding=bytes(16_384)) for i in range(2048)]
    assert heard(list(reports(chunks, engine().stats()))) == [Chunk(*chunk) for chunk in chunks]


def test_a_long_chunk_without_logprobs_stays_whole() -> None:
    chunk = OutputChunk("r", 0, 0, list(range(PIECE_TOKENS + 1)), "length", is_last=True)
    [report] = reports([chunk], engine().stats())
    assert report.chunks == [Chunk(*chunk)]
