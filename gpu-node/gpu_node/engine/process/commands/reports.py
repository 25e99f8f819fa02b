"""What an engine has to say of a step, in as many reports as its frames need: no answer is too large to be told.

A ranked request (`Sampling.is_ranked`) is told at its end, all choices and logprobs at once, and a step may bring a
thousand embeddings: either can be more than a frame holds, and an engine that cannot tell what it has would die of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.framing import MAX_FRAME_BYTES
from gpu_node.engine.process.protocol.protocol import StepReport
from gpu_node.engine.requests.chunk import OutputChunk

MAX_REPORT_BYTES = MAX_FRAME_BYTES // 4
"""Of the chunks of one report, as they are estimated here; their agent publishes each by itself."""
PIECE_TOKENS = 4096
"""Of a chunk that is larger than that alone: with 20 logprobs each they take a third of it."""

_CHUNK_BYTES = 256  # names of fields and what is short
_TOKEN_BYTES, _LOGPROB_BYTES, _TOP_BYTES = 5, 13, 15  # at most, as MessagePack has them
_CHARACTER_BYTES = 4


def reports(chunks: Iterable[OutputChunk], stats: EngineStats) -> list[StepReport]:
    """One report where it fits, with all chunks in their order; one without chunks where there are none."""
    found: list[StepReport] = []
    part: list[OutputChunk] = []
    part_bytes = 0
    for chunk in chunks:
        for piece in _pieces(chunk):
            num_bytes = _num_bytes(piece)
            if part and part_bytes + num_bytes > MAX_REPORT_BYTES:
                found.append(StepReport.of(part, stats))
                part, part_bytes = [], 0
            part.append(piece)
            part_bytes += num_bytes
    return [*found, StepReport.of(part, stats)]


def _pieces(chunk: OutputChunk) -> Iterator[OutputChunk]:
    """A chunk as it is, or one that is too large as others could have brought its tokens, the last of them its end."""
    num_tokens = len(chunk.token_ids)
    if num_tokens <= PIECE_TOKENS or _num_bytes(chunk) <= MAX_REPORT_BYTES:
        yield chunk
        return
    last = (num_tokens - 1) // PIECE_TOKENS * PIECE_TOKENS
    for first in range(0, num_tokens, PIECE_TOKENS):
        tokens = slice(first, first + PIECE_TOKENS)
        piece = chunk._replace(
            start=chunk.start + first, token_ids=chunk.token_ids[tokens], logprobs=chunk.logprobs[tokens]
        )
        piece = piece if first == last else piece._replace(finish_reason="", error="", is_last=False)
        yield piece if first == 0 else piece._replace(cached_tokens=None)


def _num_bytes(chunk: OutputChunk) -> int:
    """As it is encoded, at most."""
    logprob_bytes = sum(_LOGPROB_BYTES + _TOP_BYTES * len(one.top) for one in chunk.logprobs)
    text_bytes = _CHARACTER_BYTES * (len(chunk.request_id) + len(chunk.error))
    return _CHUNK_BYTES + text_bytes + _TOKEN_BYTES * len(chunk.token_ids) + logprob_bytes + len(chunk.embedding)
