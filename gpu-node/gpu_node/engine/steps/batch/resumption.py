"""From a request to the state that an image keeps of it, and back."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.device.device_blocks import BlockPlace
from gpu_node.engine.requests.image import BlockFormat, RequestState, SequenceState
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from shared.messages.memory.tiers import Tier
from shared.messages.requests.payload import Payload


@dataclass(frozen=True, slots=True)
class HeldState:
    """A request as it stands, and where its blocks are."""

    state: RequestState
    device_blocks: tuple[int, ...]
    """In the order of the image's places, the first of which these are."""
    host_blocks: tuple[int, ...] = ()
    """Behind them."""


def held_state(request: EngineRequest, blocks: BlockManager, model: LoadedModel) -> HeldState | None:
    """The state of a request of which no step is in flight; None where nothing is computed that would be worth it.

    Nor is anything kept of one that lies on a receiver.
    """
    if blocks.remote.has(request.sequences[0].sequence_id):
        return None
    holders = [one for one in request.holders if one.num_computed_tokens]
    if not holders:
        return None
    tables: dict[int, list[BlockPlace]] = {}
    for sequence in holders:
        num_blocks = -(-sequence.num_computed_tokens // model.block_size)
        tables[sequence.sequence_id] = blocks.places(sequence.sequence_id)[:num_blocks]
    found = dict.fromkeys(place for table in tables.values() for place in table)
    device_blocks = tuple(place.block for place in found if place.tier is Tier.DEVICE)
    host_blocks = tuple(place.block for place in found if place.tier is Tier.HOST)
    numbers = {BlockPlace(Tier.DEVICE, block): number for number, block in enumerate(device_blocks)}
    numbers |= {BlockPlace(Tier.HOST, block): number for number, block in enumerate(host_blocks, len(numbers))}
    state = RequestState(
        request_id=request.request_id,
        attempt=request.payload.attempt,
        format=BlockFormat.of(model, request.payload.adapter),
        num_blocks=len(numbers),
        sequences=[
            _state(one, [numbers[place] for place in tables.get(one.sequence_id, [])]) for one in request.sequences
        ],
        num_shared_tokens=request.num_shared_tokens,
        is_forked=request.is_forked,
        hypotheses=request.hypotheses,
        num_cached_tokens=request.num_cached_tokens,
    )
    return HeldState(state, device_blocks, host_blocks)


def prompt_blocks(request: EngineRequest, blocks: BlockManager) -> tuple[AnySequence[int], int]:
    """Blocks of the device that hold the first tokens of a prompt and are full, steps in flight included, in their
    order; and the tokens of the prompt. None of a request that has no blocks there.
    """
    leader = request.sequences[0]
    num_full = min(leader.num_computed_tokens, leader.num_prompt_tokens) // blocks.block_size
    is_here = (
        num_full > 0 and not blocks.is_swapped_out(leader.sequence_id) and not blocks.remote.has(leader.sequence_id)
    )
    return (blocks.table(leader.sequence_id)[:num_full] if is_here else ()), leader.num_prompt_tokens


def resumed(state: RequestState, payload: Payload, order: int, ids: Iterator[int], max_model_len: int) -> EngineRequest:
    """The request that goes on from a state. It waits, and holds nothing yet."""
    prompt, sampling = payload.prompt_token_ids, payload.sampling
    max_len = min(len(prompt) + sampling.max_tokens, max_model_len)
    sequences = [
        Sequence(
            sequence_id=next(ids),
            choice=one.choice,
            token_ids=[*prompt, *one.output_token_ids],
            num_prompt_tokens=len(prompt),
            max_len=max_len,
            awaits_draws=sampling.is_beam,
            num_computed_tokens=one.num_computed_tokens,
            num_drawn_tokens=1 if one.continuations else 0,
            logprobs=list(one.logprobs),
            sum_logprobs=one.sum_logprobs,
            continuations=one.continuations,
        )
        for one in state.sequences
    ]
    return EngineRequest(
        payload,
        order,
        sequences,
        num_shared_tokens=state.num_shared_tokens,
        is_forked=state.is_forked,
        hypotheses=list(state.hypotheses),
        parked=state,
        num_cached_tokens=state.num_cached_tokens,
    )


def _state(sequence: Sequence, places: list[int]) -> SequenceState:
    assert sequence.num_drawn_tokens == (1 if sequence.continuations else 0), "no step is in flight"
    return SequenceState(
        choice=sequence.choice,
        output_token_ids=sequence.token_ids[sequence.num_prompt_tokens :],
        num_computed_tokens=sequence.num_computed_tokens,
        places=places,
        logprobs=sequence.logprobs,
        sum_logprobs=sequence.sum_logprobs,
        continuations=list(sequence.continuations),
    )
