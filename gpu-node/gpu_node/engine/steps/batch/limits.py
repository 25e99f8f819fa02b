"""What an engine refuses at once."""

from __future__ import annotations

import math
from itertools import chain

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.sequence import num_places
from gpu_node.engine.steps.batch.rows import num_tops
from shared.config.engines.engine import TASK_ANSWERS, EngineOptions
from shared.messages.requests.payload import Payload, Sampling

MAX_LOGPROBS = 20
"""As OpenAI has it, like the next two."""
MAX_PENALTY = 2.0
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 10.0
"""A logit divided by the least, or multiplied by the most, is far from where a float ends."""
MAX_BIAS = 100.0
MAX_LENGTH_PENALTY = 10.0
"""Any length to this power is a float."""
MAX_BIASES = 1024
"""Entries of a request's ``logit_bias``; each is added in every step."""

NO_GRAMMARS = "this engine compiles no grammars, so it has no structured output"


def refusal(payload: Payload, model: LoadedModel, options: EngineOptions, grammar_problem: str = NO_GRAMMARS) -> str:
    """Why this request of the model can never run, or ``""``. Said at once, not after it has waited.

    ``grammar_problem``: why there is no grammar for its constraint, where it has one; ``""`` where there is.
    """
    num_prompt_tokens = len(payload.prompt_token_ids)
    if payload.adapter and payload.adapter not in model.adapters:
        return f"{model.name!r} has no adapter {payload.adapter!r} at this node"
    if payload.pictures and not model.takes_pictures:
        return f"{model.name!r} takes no images at this node"
    if num_prompt_tokens == 0:
        return "the prompt has no tokens"
    if num_prompt_tokens >= model.max_model_len:
        return f"{num_prompt_tokens} tokens leave no room for output: {model.name!r} takes {model.max_model_len}"
    known = chain(payload.prompt_token_ids, *(output.token_ids for output in payload.outputs))
    wrong = [token for token in known if not 0 <= token < model.vocab_size]
    if wrong:
        return f"token id {wrong[0]} is outside the vocabulary of {model.vocab_size}"
    return (
        _task_refusal(payload.sampling, model)
        or _filter_refusal(payload.sampling)
        or _constraint_refusal(payload.sampling, grammar_problem)
        or _penalty_refusal(payload.sampling, model)
        or _choices_refusal(payload, model, options)
        or _memory_refusal(num_prompt_tokens, payload.sampling, model)
    )


def _task_refusal(sampling: Sampling, model: LoadedModel) -> str:
    if model.gives_rows and not sampling.is_embedding:
        return f"{model.name!r} gives {TASK_ANSWERS[model.task]} and no text (task: {model.task})"
    if not sampling.is_embedding:
        return ""
    if not model.gives_rows:
        return f"{model.name!r} gives text and no embeddings (task: generate)"
    if num_places(sampling) > 1 or sampling.is_beam or sampling.max_tokens != 1:
        return "a text has one embedding: one choice, and max_tokens of 1"
    if sampling.constraint is not None or sampling.has_penalties or sampling.num_logprobs is not None:
        return "an embedding has no constraint, penalties or logprobs"
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


def _constraint_refusal(sampling: Sampling, grammar_problem: str) -> str:
    if sampling.constraint is None:
        return ""
    if sampling.is_beam:
        return "beam search has no structured output; leave use_beam_search out"
    return grammar_problem


def _penalty_refusal(sampling: Sampling, model: LoadedModel) -> str:
    for name, penalty in (("presence", sampling.presence_penalty), ("frequency", sampling.frequency_penalty)):
        if not -MAX_PENALTY <= penalty <= MAX_PENALTY:
            return f"{name}_penalty is {penalty}; it must be between {-MAX_PENALTY} and {MAX_PENALTY}"
    least, most = MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY
    if not least <= sampling.repetition_penalty <= most:
        return f"repetition_penalty is {sampling.repetition_penalty}; it must be between {least} and {most}"
    if len(sampling.logit_bias) > MAX_BIASES:
        return f"logit_bias has {len(sampling.logit_bias)} entries; at most {MAX_BIASES} are taken"
    for token, bias in sampling.logit_bias:
        if not 0 <= token < model.vocab_size:
            return f"logit_bias names token id {token}, which is outside the vocabulary of {model.vocab_size}"
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            return f"logit_bias of token id {token} is {bias}; it must be between {-MAX_BIAS} and {MAX_BIAS}"
    return ""


def _choices_refusal(payload: Payload, model: LoadedModel, options: EngineOptions) -> str:
    sampling = payload.sampling
    num_sequences = num_places(sampling)
    if sampling.num_choices < 1 or sampling.num_candidates < 1:
        return f"{sampling.num_choices} choices of {sampling.num_candidates} candidates; at least 1 of each is needed"
    if sampling.is_ranked and sampling.num_choices > sampling.num_candidates:
        return f"{sampling.num_choices} choices cannot be the best of {sampling.num_candidates} candidates"
    if len(payload.outputs) > num_sequences:
        return f"the payload has the output of {len(payload.outputs)} choices; {num_sequences} are asked for"
    if not -MAX_LENGTH_PENALTY <= sampling.length_penalty <= MAX_LENGTH_PENALTY:
        bound = MAX_LENGTH_PENALTY
        return f"length_penalty is {sampling.length_penalty}; it must be between {-bound} and {bound}"
    if num_sequences > options.max_num_seqs:
        return f"{num_sequences} sequences can never run at once: max_num_seqs is {options.max_num_seqs}"
    if num_sequences > options.step_tokens:
        return f"{num_sequences} sequences do not fit into one step: step_tokens is {options.step_tokens}"
    num_top = num_tops(sampling, model)
    if num_top is not None and num_top > model.vocab_size:
        return f"the {num_top} most likely tokens are needed; the vocabulary has {model.vocab_size}"
    return ""


def _memory_refusal(num_prompt_tokens: int, sampling: Sampling, model: LoadedModel) -> str:
    """The full blocks of the prompt are there once, all others once a sequence.

    The last token drawn is never computed, so it needs no slot.
    """
    num_slots = min(num_prompt_tokens + sampling.max_tokens, model.max_model_len) - 1
    num_shared_blocks = num_prompt_tokens // model.block_size
    num_own_blocks = -(-num_slots // model.block_size) - num_shared_blocks
    num_sequences = num_places(sampling)
    num_blocks = num_shared_blocks + num_sequences * num_own_blocks
    if num_blocks <= model.max_request_blocks:
        return ""
    who = f"{num_slots} tokens" if num_sequences == 1 else f"{num_sequences} sequences of {num_slots} tokens"
    return f"{who} need {num_blocks} KV blocks; the engine has {model.max_request_blocks} for one request"
