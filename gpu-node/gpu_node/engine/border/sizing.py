"""How a model divides the KV memory that the configuration gives an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.models.config import ModelConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import MIN_MODEL_LEN, EngineOptions, ModelSpec
from shared.config.engines.speculation import MAX_DRAFT_TOKENS
from shared.files.encoder import own_step_tokens, step_length
from shared.files.kv_paging import MAX_WASTE, Paging, block_bytes, paging

MAX_CONTEXT_LENGTH = 1 << 20
"""Tokens; stands for the context of a model that has no files to say it. No configuration asks for more."""


def device_paging(options: EngineOptions) -> Paging:
    """How the device's KV memory is cut."""
    return paging(options.unmeasured_kv_bytes, options.num_sharing)


def host_paging(options: EngineOptions) -> Paging:
    """How the host's memory for KV is cut: for what is swapped out, and for copies of full blocks."""
    return paging(options.host_kv_bytes + options.tiers.host_bytes, options.max_models)


def loaded_model(
    spec: ModelSpec,
    config: ModelConfig,
    options: EngineOptions,
    number_bytes: int,
    kv_layout: str,
    kv_cache_bytes: int | None = None,
    kv_identity: str = "",
    *,
    adapter_layouts: tuple[str, ...] = (),
    checks_guesses: bool = False,
) -> LoadedModel:
    """What bookkeeping is told of a model whose KV cache holds numbers of ``number_bytes`` in the named order.

    ``kv_cache_bytes`` are what was measured, where the options do not say it. ``checks_guesses``: rows of the executor
    have the same bits beside others of their sequence. Raises `ModelTooLargeError` as `cut`.
    """
    model = cut(
        spec.name,
        options,
        token_bytes=_token_bytes(config, number_bytes),
        max_model_len=spec.max_model_len,
        context_length=_most_tokens(config, options),
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids,
        kv_layout=kv_layout,
        kv_cache_bytes=kv_cache_bytes,
        adapters=spec.adapters,
    )
    max_draft_tokens = 0 if spec.speculation is None else spec.speculation.max_draft_tokens
    return replace(
        model,
        kv_identity=kv_identity,
        adapter_layouts=adapter_layouts,
        task=spec.task,
        max_draft_tokens=max_draft_tokens,
        max_structured_tokens=MAX_DRAFT_TOKENS if checks_guesses and options.structured_guesses else 0,
        is_encoder=config.is_encoder,
        step_tokens=own_step_tokens(options, is_encoder=config.is_encoder),
    )


def least_kv_bytes(spec: ModelSpec, config: ModelConfig, options: EngineOptions, number_bytes: int) -> int:
    """What one sequence of full length needs: a model with less is refused, unless its length follows the memory."""
    num_blocks = -(-_full_length(spec.max_model_len, _most_tokens(config, options)) // options.block_size)
    return num_blocks * block_bytes(options.block_size, _token_bytes(config, number_bytes))


def cut(
    name: str,
    options: EngineOptions,
    *,
    token_bytes: int,
    max_model_len: int | None,
    vocab_size: int,
    context_length: int = MAX_CONTEXT_LENGTH,
    eos_token_ids: frozenset[int] = frozenset(),
    kv_layout: str = "",
    kv_cache_bytes: int | None = None,
    adapters: Sequence[AdapterSpec] = (),
) -> LoadedModel:
    """Cut pages into the blocks of a model with ``token_bytes`` of keys and values a token.

    Without ``max_model_len``, a sequence may be as long as the model's context and its equal part of the memory are.
    Raises `ModelTooLargeError` when one sequence of full length would not fit into that part, or when blocks are so
    large that too much of each page would be left over.
    """
    kv_bytes = options.unmeasured_kv_bytes if kv_cache_bytes is None else kv_cache_bytes
    device, host = paging(kv_bytes, options.num_sharing), host_paging(options)
    num_bytes = block_bytes(options.block_size, token_bytes)
    if device.num_pages > 1 and device.waste(num_bytes) >= MAX_WASTE:
        raise ModelTooLargeError(
            f"model {name!r}: blocks of {num_bytes} bytes leave {device.waste(num_bytes):.0%} of a page of "
            f"{device.page_bytes} bytes unused; give more kv_cache_bytes, which makes larger pages, or set another "
            f"block_size"
        )
    model = LoadedModel(
        name=name,
        num_blocks=device.num_pages * device.blocks_per_page(num_bytes),
        block_size=options.block_size,
        block_bytes=num_bytes,
        max_model_len=_full_length(max_model_len, context_length),
        vocab_size=vocab_size,
        eos_token_ids=eos_token_ids,
        num_pages=device.num_pages,
        num_host_blocks=host.num_pages * host.blocks_per_page(num_bytes),
        num_host_pages=host.num_pages,
        max_models=options.max_models,
        kv_layout=kv_layout,
        adapters=tuple(one.name for one in adapters),
    )
    if max_model_len is None:
        room_tokens = model.max_request_blocks * options.block_size
        model = replace(model, max_model_len=min(model.max_model_len, max(MIN_MODEL_LEN, room_tokens)))
    num_needed = -(-model.max_model_len // options.block_size)
    if model.max_request_blocks < num_needed:
        part = f" for {options.max_models} models" if options.max_models > 1 else ""
        raise ModelTooLargeError(
            f"model {name!r}: one sequence of {model.max_model_len} tokens needs {num_needed * num_bytes} bytes of KV "
            f"cache ({num_needed} blocks of {num_bytes}); kv_cache_bytes is {kv_bytes}{part} "
            f"({model.max_request_blocks} blocks)"
        )
    return model


def _token_bytes(config: ModelConfig, number_bytes: int) -> int:
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * number_bytes


def _most_tokens(config: ModelConfig, options: EngineOptions) -> int:
    """Of a request, as far as the model goes; an encoder's texts fit into one step, too."""
    return min(config.max_length, step_length(options)) if config.is_encoder else config.max_length


def _full_length(max_model_len: int | None, context_length: int) -> int:
    return context_length if max_model_len is None else min(max_model_len, context_length)
