"""From a valid body to a job: the model, the room in its context, how to sample, and the promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.http.context import GatewayContext
from gateway.models.models import ServedModel
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from gateway.openai.errors import errors
from gateway.openai.requests.schema import GenerationRequest
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.messages.requests.payload import Constraint, Sampling
from shared.messages.requests.pictures import Picture

# Tokenising takes about half a microsecond a character, so up to here it holds other requests up for a millisecond,
# less than a hand-over to a busy thread pool; a longer text goes to a thread, where it runs without the GIL.
MAX_INLINE_CHARACTERS = 2048

# Several candidates together, in tokens: they share the room for KV on one node, and are held here until they are read.
MAX_CANDIDATE_TOKENS = 1 << 17

# A payload as MessagePack: what it has beside the tokens (and biases, which are no shorter in the body), and the most
# that a token takes, of a small vocabulary and of any.
PAYLOAD_BYTES = 1024
MAX_SHORT_TOKEN_BYTES = 3
MAX_TOKEN_BYTES = 5

_SEED_MASK = (1 << 63) - 1  # seeds travel as non-negative 63-bit numbers; a client's negative one is wrapped


@dataclass(frozen=True)
class Room:
    """How many tokens an answer may have, and which field of the request says so."""

    wanted: int | None
    default: int | None
    """Taken when nothing is wanted; None stands for what fits into the context, shared by all candidates.

    A node that has memory for one request of that length then has it for all of them.
    """
    param: str


def find_model(context: GatewayContext, name: str, task: ModelTask | None = None) -> ServedModel:
    """The model served under ``name``; `ApiError` 404 lists those there are, 400 where it is not for ``task``, 503
    where it takes no requests now."""
    model = context.models.get(name)
    if model is None:
        if name in (withheld := context.withheld()):
            raise errors.no_endpoints(withheld[name])
        raise errors.model_not_found(name, list(context.models))
    if task is not None and model.task != task:
        raise errors.wrong_task(
            name, model.task, task, [one for one, other in context.models.items() if other.task == task]
        )
    return model


def check_characters(model: ServedModel, num_characters: int, param: str) -> None:
    """`ApiError` 400 for a text that is longer than the longest tokens make it: told before it is tokenised."""
    most = model.max_model_len * model.tokenizer.max_token_characters
    if num_characters > most:
        raise errors.prompt_too_long(model.max_model_len, num_characters, most, param)


def check_token_ids(tokenizer: PromptTokenizer, token_ids: Collection[int], param: str) -> None:
    """`ApiError` 400 unless all of them are the model's."""
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= tokenizer.vocab_size):
        raise errors.invalid(f"token ids are numbers from 0 to {tokenizer.vocab_size - 1}", param)


async def tokenise(work: Callable[[], list[list[int]]], num_characters: int, threads: TenantThreads) -> list[list[int]]:
    """Run a tokenisation where it holds up no other request."""
    return work() if num_characters <= MAX_INLINE_CHARACTERS else await threads.run_text(work)


def max_tokens(model: ServedModel, num_prompt: int, room: Room, prompt_param: str, num_candidates: int) -> int:
    """The limit of each candidate; `ApiError` 400 when there is no prompt, or prompt and answer do not fit."""
    if num_prompt == 0:
        raise errors.invalid("the prompt is empty", prompt_param)
    fits = model.max_model_len - num_prompt
    if fits < 1:
        raise errors.context_length_exceeded(model.max_model_len, num_prompt, room.wanted or 1, prompt_param)
    if room.wanted is None:
        share = max(min(fits, MAX_CANDIDATE_TOKENS) // num_candidates, 1) if num_candidates > 1 else fits
        return share if room.default is None else min(room.default, fits)
    if room.wanted > fits:
        raise errors.context_length_exceeded(model.max_model_len, num_prompt, room.wanted, room.param)
    if num_candidates > 1 and num_candidates * room.wanted > MAX_CANDIDATE_TOKENS:
        raise errors.too_many_tokens(num_candidates, room.wanted, MAX_CANDIDATE_TOKENS, room.param)
    return room.wanted


def payload_bytes(
    vocab_size: int,
    prompts: Sequence[Sequence[int]],
    constraint: Constraint | None = None,
    pictures: Sequence[Picture] = (),
) -> int:
    """What the payloads of these prompts may take, at most; the answer is in a payload only where it is resumed.

    Images (``pictures``) lie beside it, and are held here as long.
    """
    token_bytes = MAX_SHORT_TOKEN_BYTES if vocab_size <= 1 << 16 else MAX_TOKEN_BYTES
    constraint_bytes = 0 if constraint is None else len(constraint.text.encode()) + len(constraint.lead.encode())
    picture_bytes = sum(PAYLOAD_BYTES + len(picture.content) for picture in pictures)
    return picture_bytes + sum(PAYLOAD_BYTES + constraint_bytes + token_bytes * len(prompt) for prompt in prompts)


def sampling(
    context: GatewayContext, model: ServedModel, body: GenerationRequest, limit: int, constraint: Constraint | None
) -> Sampling:
    """How a node is to draw tokens; `ApiError` 400 for what no node of this cluster can do."""
    max_candidates = context.config.engine.max_num_seqs
    if body.num_candidates > max_candidates:
        param = "n" if body.best_of is None else "best_of"
        raise errors.invalid(f"a node of this cluster runs {max_candidates} candidates at a time", param)
    check_token_ids(model.tokenizer, body.logit_bias, "logit_bias")
    seed = int.from_bytes(context.random_bytes(8), "big") if body.seed is None else body.seed
    # beams are not drawn
    drawn = body if body.use_beam_search else body.filled(model.sampling)
    return Sampling(
        max_tokens=limit,
        temperature=drawn.temperature,
        top_k=max(drawn.top_k, 0),
        top_p=drawn.top_p,
        min_p=drawn.min_p,
        seed=seed & _SEED_MASK,
        is_seeded=body.seed is not None,
        stop_token_ids=[] if body.ignore_eos else list(model.tokenizer.eos_ids),
        ignore_eos=body.ignore_eos,
        presence_penalty=drawn.presence_penalty,
        frequency_penalty=drawn.frequency_penalty,
        repetition_penalty=drawn.repetition_penalty,
        logit_bias=sorted(body.logit_bias.items()),
        num_logprobs=body.num_logprobs,
        num_choices=body.n,
        num_candidates=body.num_candidates,
        is_beam=body.use_beam_search,
        length_penalty=body.length_penalty,
        constraint=constraint,
        is_embedding=model.task != "generate",
    )
