"""What an engine refuses at once, and when a sequence is at its end."""

from __future__ import annotations

import math
from itertools import chain

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.sequence import Sequence
from shared.messages import Payload, Sampling

MAX_LOGPROBS = 20
"""As OpenAI has it, like the next two."""
MAX_PENALTY = 2.0
MAX_BIAS = 100.0
MAX_BIASES = 1024
"""Entries of a request's ``logit_bias``; each is added in every step."""


def refusal(payload: Payload, model: LoadedModel) -> str:
    """Why this request can never run on this model, or ``""``. Said at once, not after it has waited."""
    num_prompt_tokens = len(payload.prompt_token_ids)
    outputs = [output.token_ids for output in payload.outputs]
    num_tokens = num_prompt_tokens + max(map(len, outputs), default=0)
    if payload.model != model.name:
        return f"model {payload.model!r} is not loaded here; {model.name!r} is"
    if num_prompt_tokens == 0:
        return "the prompt has no tokens"
    if num_tokens >= model.max_model_len:
        return f"{num_tokens} tokens leave no room for output: {model.name!r} takes {model.max_model_len}"
    known = chain(payload.prompt_token_ids, *outputs)
    wrong = [token for token in known if not 0 <= token < model.vocab_size]
    if wrong:
        return f"token id {wrong[0]} is outside the vocabulary of {model.vocab_size}"
    num_slots = num_slots_at_end(num_prompt_tokens, payload.sampling, model)
    num_blocks = -(-num_slots // model.block_size)
    if num_blocks > model.num_blocks:
        return f"{num_slots} tokens need {num_blocks} KV blocks; the engine has {model.num_blocks}"
    return _filter_refusal(payload.sampling) or _penalty_refusal(payload.sampling, model)


def num_slots_at_end(num_prompt_tokens: int, sampling: Sampling, model: LoadedModel) -> int:
    """Most KV slots a sequence can come to hold; the last token drawn is never computed, so it needs none."""
    return min(num_prompt_tokens + sampling.max_tokens, model.max_model_len) - 1


def finish_reason(sequence: Sequence, sampling: Sampling, model: LoadedModel) -> str:
    """``stop``, ``length`` or ``""``, judged by the sequence's output so far. A stopping token stays in the output."""
    if sequence.num_output_tokens > 0:
        token = sequence.token_ids[-1]
        if token in sampling.stop_token_ids or (token in model.eos_token_ids and not sampling.ignore_eos):
            return "stop"
    if sequence.num_output_tokens >= sampling.max_tokens or len(sequence.token_ids) >= model.max_model_len:
        return "length"
    return ""


def _filter_refusal(sampling: Sampling) -> str:
    if sampling.max_tokens < 1:
        return f"max_tokens is {sampling.max_tokens}; at least 1 is needed"
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        return f"temperature is {sampling.temperature}; it must be a number of at least 0"
    if sampling.top_k < 0:
        return f"top_k is {sampling.top_k}; it must be at least 0"
    if not 0 < sampling.top_p <= 1:
        return f"top_p is {sampling.top_p}; it must be above 0 and at most 1"
    if not 0 <= sampling.min_p <= 1:
        return f"min_p is {sampling.min_p}; it must be between 0 and 1"
    if sampling.num_logprobs is not None and not 0 <= sampling.num_logprobs <= MAX_LOGPROBS:
        return f"num_logprobs is {sampling.num_logprobs}; it must be between 0 and {MAX_LOGPROBS}"
    return ""


def _penalty_refusal(sampling: Sampling, model: LoadedModel) -> str:
    for name, penalty in (("presence", sampling.presence_penalty), ("frequency", sampling.frequency_penalty)):
        if not -MAX_PENALTY <= penalty <= MAX_PENALTY:
            return f"{name}_penalty is {penalty}; it must be between {-MAX_PENALTY} and {MAX_PENALTY}"
    if not (math.isfinite(sampling.repetition_penalty) and sampling.repetition_penalty > 0):
        return f"repetition_penalty is {sampling.repetition_penalty}; it must be a number above 0"
    if len(sampling.logit_bias) > MAX_BIASES:
        return f"logit_bias has {len(sampling.logit_bias)} entries; at most {MAX_BIASES} are taken"
    for token, bias in sampling.logit_bias:
        if not 0 <= token < model.vocab_size:
            return f"logit_bias names token id {token}, which is outside the vocabulary of {model.vocab_size}"
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            return f"logit_bias of token id {token} is {bias}; it must be between {-MAX_BIAS} and {MAX_BIAS}"
    return ""
