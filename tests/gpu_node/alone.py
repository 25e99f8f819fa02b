"""What each request has to bring, computed by itself: no blocks, no steps, the whole context read for every token."""

from __future__ import annotations

from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node.bookkeeping import EOS
from tests.gpu_node.integer_device import logprobs_after, token_after
from tests.gpu_node.integer_grammar import IntegerMatcher

Answer = dict[int, tuple[list[int], str]]
"""Output and finish reason by choice."""


def answer(payload: Payload, max_model_len: int) -> Answer:
    """All choices of a request from its beginning on."""
    prompt, sampling = payload.prompt_token_ids, payload.sampling
    limit = min(sampling.max_tokens, max_model_len - len(prompt))
    if sampling.is_beam:
        found = beam_search(prompt, sampling, limit)
    else:
        num_made = max(sampling.num_choices, sampling.num_candidates)
        found = [_choice(prompt, sampling, number, limit) for number in range(num_made)]
    if sampling.is_ranked and not sampling.is_beam:
        found.sort(key=lambda one: -_score(prompt, one[0], sampling))
    return dict(enumerate(found[: sampling.num_choices]))


def beam_search(prompt: list[int], sampling: Sampling, limit: int) -> list[tuple[list[int], str]]:
    """Step by step over all continuations, the beams being plain lists; the hypotheses, best first."""
    width = sampling.num_candidates
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int], str]] = []
    for length in range(1, limit + 1):
        ranked = sorted(
            (-(total + logprob), place, word)
            for place, (total, output) in enumerate(beams)
            for word, logprob in logprobs_after(prompt + output)
        )
        going: list[tuple[float, list[int]]] = []
        for rank, (negative, place, word) in enumerate(ranked):
            output = [*beams[place][1], word]
            reason = _reason(output, sampling, limit)
            if not reason:
                going.append((-negative, output))
            elif rank < width:
                ended.append((-negative / length**sampling.length_penalty, output, reason))
        ended = sorted(ended, key=lambda one: -one[0])[:width]
        beams = going[:width]
        longest = limit if sampling.length_penalty > 0 else length
        hopes = [total / longest**sampling.length_penalty for total, _ in beams]
        if len(ended) == width and all(hope <= ended[-1][0] for hope in hopes):
            break
    return [(output, reason) for _, output, reason in ended]


def _choice(prompt: list[int], sampling: Sampling, choice: int, limit: int) -> tuple[list[int], str]:
    output: list[int] = []
    matcher = None if sampling.constraint is None else IntegerMatcher()
    while not (reason := "stop" if matcher and matcher.is_over else _reason(output, sampling, limit)):
        allowed = matcher.allowed if matcher else b""
        output.append(token_after(prompt + output, sampling, choice, len(output), allowed))
        if matcher:
            matcher.take(output[-1])
    return output, reason


def _reason(output: list[int], sampling: Sampling, limit: int) -> str:
    if output and ((output[-1] == EOS and not sampling.ignore_eos) or output[-1] in sampling.stop_token_ids):
        return "stop"
    return "length" if len(output) >= limit else ""


def _score(prompt: list[int], output: list[int], sampling: Sampling) -> float:
    total = 0.0
    for place, token in enumerate(output):
        total += dict(logprobs_after(prompt + output[:place]))[token]
    return total / float(len(output) ** sampling.length_penalty)
