"""What continuous batching makes of a group of requests on a node: how many run together, and what each costs.

With b requests in the batch, each step reads the weights once for all of them. A request computes its p prompt tokens
and then o - 1 of its o output tokens (the first comes with the end of the prompt), so by `StepCost` it takes of the
device::

    a = step_s / b + token_s + (context_token_s + attended_token_s) * (p + m)                for each output token
    c = token_s * p + attended_token_s * (E[p²] + p) / 2 + context_token_s * p * (n + 1) / 2   for n steps of prompt
    request_s = o * a + c                                              so  Θ = o / request_s  output tokens a second

where p is what of a prompt is not found in a cache, and m = E[O²] / 2 E[O] is what a request that runs has behind it,
and has before it, on average (residual life: long outputs are met more often). This is QLM's Θ (SoCC'24 §5), worked out
instead of looked up. Each output token brings p / o prompt tokens with it, so prompts of thousands of tokens crowd out
decoding as they do on the device.

b is the least of ``max_num_seqs``, of the requests whose KV fits, and of those that the rows of a step can feed. In KV
memory, each holds p + m tokens on average and all but one of a last block, and the next one, which does not fit yet,
leaves half of what it needs unused. ``step_tokens`` rows bring y = step_tokens * o / (p + o - 1) output tokens at most.
A prompt that is longer than what decoding leaves of a step takes a place for some steps before it decodes, so that
y = b * o / (o - 1 + steps of the prompt). What y < b costs, o * step_s * (1 / y - 1 / b), is part of c.

Where tokens are guessed, a sequence that decodes has r rows in a step and gets g tokens by them (`DecodeYield`; g is
E(# generated tokens) of Leviathan et al., ICML'23, equation 1, as the node has measured it). Its o tokens take
s = 1 + (o - 1) / g steps, which stand for o in the numbers of steps above; r multiplies what a row costs in them, not
the context, which all rows of a sequence read together::

    a = s / o * (step_s / b + r * token_s + (context_token_s + r * attended_token_s) * (p + m))

Guesses have the rows that others leave (`gpu_node.engine.steps.guesses.speculation`), so they feed no batch and starve
none.
"""

from __future__ import annotations

import math

import msgspec

from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost

PRIOR_TOKENS_PER_S = 50.0  # throughput assumed with a model of which the node knows nothing
PRIOR_SWAP_S = 2.0  # duration of a swap on a node that has not measured one
PRIOR_NUM_SEQS = 32  # batch of an engine that has not said how many it runs together
BLOCK_TOKENS = 16  # of a block of KV memory
PRIOR_KV_BYTES_PER_S = 1e9  # rate of KV moves between device and host memory before the first one


class Batching(msgspec.Struct, frozen=True, gc=False):
    """One group on one node, with the batch full of requests like its own."""

    batch: float
    """Requests that run together at most: b."""
    num_step_tokens: float
    """Output tokens of a step: y."""
    output_tokens: float
    """Expected of a waiting member: o."""
    std_output_tokens: float
    token_s: float
    """Device time of an output token: a."""
    prompt_s: float
    """Device time of a prompt: c."""
    burst_s: float
    """Of a prompt among others, while there are places for all of them."""
    prompt_tokens: float
    """Of a prompt, those that have to be computed."""
    step_tokens: int
    """Most rows of a step; 0 where that is not known."""
    chunks: float
    """Steps that a prompt takes, 1 at least."""
    prompt_rows_s: float
    """What the prompt's rows add to them."""
    token_steps: float
    """Steps for each token behind the first: 1 / g."""
    step_s: float
    """Of each step: reading the weights."""
    row_s: float
    """What a sequence adds to a decode step."""
    std_request_s: float
    """Of ``request_s``: σ / Θ (QLM's), and what prompts differ by."""
    std_prompt_s: float
    error_s: float
    """Standard error of ``request_s``, as far as it comes from an expected length that has been seen too seldom."""

    @property
    def request_s(self) -> float:
        """Device time of a waiting member."""
        return self.output_tokens * self.token_s + self.prompt_s

    @property
    def tokens_per_s(self) -> float:
        """Θ."""
        return self.output_tokens / self.request_s

    @property
    def square_tokens(self) -> float:
        """E[O²]."""
        return self.output_tokens**2 + self.std_output_tokens**2

    @property
    def num_draws(self) -> float:
        """Steps in which a waiting member draws: s."""
        return _num_draws(self.output_tokens, self.token_steps)

    def step_at(self, num_running: float) -> float:
        """Seconds of a step that only decodes."""
        return self.step_s + min(num_running, self.batch) * self.row_s

    def pace_at(self, num_running: float) -> float:
        """Seconds between two tokens of a request, in steps that only decode."""
        return self.step_at(num_running) * self.token_steps

    def token_at(self, num_running: float) -> float:
        """Seconds between two tokens of a request (QLM's ε d): in a full batch, other prompts come between them."""
        if num_running >= self.batch:
            return self.num_step_tokens / self.tokens_per_s * self.token_steps
        return self.pace_at(num_running)

    def prompt_at(self, num_running: float, prompt_tokens: float) -> float:
        """For how long such a prompt keeps those behind it waiting, beside what its own rows take.

        That is its part of the rows that decoding leaves of steps.
        """
        if not self.step_tokens:
            return 0.0
        num_rows = max(1.0, self.step_tokens - min(num_running, self.batch))
        return prompt_tokens / num_rows * self.step_at(num_running)

    def first_token_at(self, num_running: float) -> float:
        """From a place in such a batch to the first token (QLM's P)."""
        return self.chunks * self.step_at(num_running) + self.prompt_rows_s


def rate_of(node: NodeState, model: str) -> ModelRate:
    """What the node knows of the model; else it is taken for the slowest of those that it knows, or by the priors."""
    for rate in node.rates:
        if rate.model == model:
            return rate
    load_s = 0.0 if node.model == model else node.swap_s or PRIOR_SWAP_S
    if node.rates:
        return max(node.rates, key=lambda rate: rate.cost.step_s).lent_to(model, load_s)
    step_s = num_seqs(node) / PRIOR_TOKENS_PER_S
    return ModelRate(model, StepCost(step_s, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=load_s)


def most_step_tokens(node: NodeState, model: str) -> int:
    """Rows that a step of the model has there at most; 0 where that is not known."""
    return rate_of(node, model).step_tokens or node.step_tokens


def takes_kv(source: NodeState, target: NodeState, model: str) -> bool:
    """Whether requests that leave ``source`` go on at ``target`` with their KV; elsewhere it is computed again."""
    return rate_of(target, model).takes_kv_of(rate_of(source, model))


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Who runs together in a steady state."""

    requests: float
    """b."""
    num_draws: float
    """Sequences that draw in a step: y, in a batch without guesses."""
    num_decode_rows: float
    """Of a step's rows, those that decoding takes from prompts."""


def full_batch(node: NodeState, shape: RequestShape, num_requests: float = math.inf) -> Batch:
    """As many requests like these as run together on the node, and no more than ``num_requests``."""
    shape = _here(node, shape)
    rate = rate_of(node, shape.model)
    output, prompt = max(1.0, shape.mean_output_tokens), shape.mean_prompt_tokens
    kept, computed = shape.kept_tokens, prompt - cached_tokens(rate, shape)
    batch = min(float(num_seqs(node)), max(1.0, num_requests))
    if rate.kv_tokens:
        held = kept + held_tokens(shape)
        too_few = (kept + prompt + output) / 2
        batch = max(1.0, min(batch, (rate.kv_tokens - too_few) / held))
    return _fed(batch, computed, _num_draws(output, 1 / rate.decode.tokens), rate.step_tokens or node.step_tokens)


def batching(
    node: NodeState, shape: RequestShape, num_requests: float = math.inf, *, among: Batch | None = None
) -> Batching:
    """Work out the steady state of such requests on the node, with no more than ``num_requests`` together.

    Alone, or ``among`` others that run with it.
    """
    shape = _here(node, shape)
    rate = rate_of(node, shape.model)
    cost = rate.cost
    output = max(1.0, shape.mean_output_tokens)
    cached = cached_tokens(rate, shape)
    prompt = shape.mean_prompt_tokens - cached
    kept = shape.kept_tokens + cached
    held = kept + prompt + residual_tokens(output, shape.std_output_tokens)
    full = full_batch(node, shape, num_requests) if among is None else among
    batch, token_steps = full.requests, 1 / rate.decode.tokens
    num_draws = _num_draws(output, token_steps)
    step_tokens = rate.step_tokens or node.step_tokens
    chunks = _chunks(prompt, step_tokens, full.num_decode_rows)
    burst_steps = prompt / step_tokens if step_tokens else 0.0
    rows = rate.decode.rows
    row_s = rows * cost.token_s + (cost.context_token_s + rows * cost.attended_token_s) * held
    read = chunks * kept + prompt * (chunks + 1) / 2
    attended = prompt * kept + (prompt**2 + shape.std_prompt_tokens**2 + prompt) / 2
    prompt_rows_s = cost.predict_s(prompt, read, attended) - cost.step_s if prompt else 0.0
    prompt_s = prompt_rows_s + num_draws * cost.step_s * (1 / full.num_draws - 1 / batch)
    token_s = (cost.step_s / batch + row_s) * (num_draws / output)
    std_prompt_s = shape.std_prompt_tokens * (cost.token_s + cost.attended_token_s * (kept + prompt))
    std_output_s = shape.std_output_tokens * (token_s + prompt_s / output)
    return Batching(
        batch=batch,
        num_step_tokens=full.num_draws * (output / num_draws),
        output_tokens=output,
        std_output_tokens=shape.std_output_tokens,
        token_s=token_s,
        prompt_s=prompt_s,
        burst_s=prompt_rows_s + burst_steps * cost.step_s,
        prompt_tokens=prompt,
        step_tokens=step_tokens,
        chunks=chunks,
        prompt_rows_s=prompt_rows_s,
        token_steps=token_steps,
        step_s=cost.step_s,
        row_s=row_s,
        std_request_s=math.hypot(std_output_s, std_prompt_s),
        std_prompt_s=std_prompt_s,
        error_s=shape.output_error_tokens * token_s,
    )


def _here(node: NodeState, shape: RequestShape) -> RequestShape:
    """What the node does of such requests: of those that it hands over, the prompt and the first token."""
    if shape.model not in node.hands_over or shape.kept_tokens:
        return shape
    return msgspec.structs.replace(shape, mean_output_tokens=1.0, std_output_tokens=0.0, output_error_tokens=0.0)


def cached_tokens(rate: ModelRate, shape: RequestShape) -> float:
    """Of a prompt, what need not be computed: what is known of this one, else what is found on average."""
    if shape.found_tokens is None:
        return shape.mean_prompt_tokens * rate.cached_share
    return min(shape.found_tokens, shape.mean_prompt_tokens)


def held_tokens(shape: RequestShape) -> float:
    """KV memory that a waiting member takes on average while it runs, the unused part of its last block included."""
    residual = residual_tokens(max(1.0, shape.mean_output_tokens), shape.std_output_tokens)
    return shape.mean_prompt_tokens + residual + BLOCK_TOKENS - 1


def residual_tokens(mean_tokens: float, std_tokens: float) -> float:
    """What a request met while it runs has left on average: E[O²] / 2 E[O], as much as it has had."""
    return (mean_tokens**2 + std_tokens**2) / (2 * mean_tokens)


def longest_tokens(mean_tokens: float, std_tokens: float, num_requests: float, limit: float = 0.0) -> float:
    """Length of the longest of several outputs: μ + σ √(2 ln n), which the mean of the longest does not exceed.

    That holds for normal lengths; ``limit`` (where it is not 0) is what they may have at most.
    """
    longest = mean_tokens + std_tokens * math.sqrt(2 * math.log(max(1.0, num_requests)))
    return max(mean_tokens, min(longest, limit)) if limit else longest


def num_seqs(node: NodeState) -> int:
    """Places of a batch."""
    return node.max_num_seqs or PRIOR_NUM_SEQS


def _num_draws(output: float, token_steps: float) -> float:
    """Steps in which a request draws so many tokens: one behind its prompt, and those of the others."""
    return 1 + (output - 1) * token_steps


def _fed(batch: float, prompt: float, num_draws: float, step_tokens: int) -> Batch:
    """A batch of so many at most, as the rows of a step can feed it: see the module's head."""
    if not step_tokens:
        return Batch(batch, batch, batch)
    limit = step_tokens * num_draws / max(num_draws, prompt + num_draws - 1)
    num_decode_rows = min(batch, limit)
    stay = (num_draws - 1 + _chunks(prompt, step_tokens, num_decode_rows)) / num_draws
    num_drawing = min(limit, batch / stay)
    return Batch(num_drawing * stay, num_drawing, num_decode_rows)


def _chunks(prompt: float, step_tokens: int, num_decoding: float) -> float:
    """Steps that a prompt takes in the rows that decoding leaves; 1 where it is not known how many there are."""
    return max(1.0, prompt / max(1.0, step_tokens - num_decoding)) if step_tokens else 1.0
