"""vLLM's KV connector by which evicted requests leave with their KV and come back with it.

One half plans, in vLLM's scheduler; the other moves, in each of its workers. What moves lies in a file a rank for a
moment, in memory (`gpu_node.vllm.blocks.transit`): the engine's process keeps it, so that it lasts over a change of
the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gpu_node.vllm.blocks.block_mover import BlockMover, KeptMove
from gpu_node.vllm.blocks.transit import FOLDER, KEPT_TOKENS
from gpu_node.vllm.words.vllm_names import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole


@dataclass(slots=True)
class KeptMoves(KVConnectorMetadata):  # type: ignore[misc]
    """Of one step; those that leave do so before others take their blocks."""

    out: list[KeptMove] = field(default_factory=list)
    back: list[KeptMove] = field(default_factory=list)


class KeptBlocks(KVConnectorBase_V1):  # type: ignore[misc]
    """Either half, as vLLM makes it."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._block_size: int = vllm_config.cache_config.block_size
        self._moves = KeptMoves()
        self._leaving: set[str] = set()
        self._moving: dict[str, int] = {}
        """Tokens of those that are on their way out."""
        self._kept: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        """Tokens of those that wait to come back."""
        if role == KVConnectorRole.WORKER:
            options = vllm_config.kv_transfer_config.kv_connector_extra_config
            self._mover = BlockMover(Path(options[FOLDER]), vllm_config.parallel_config.rank)

    # --- in the scheduler ---------------------------------------------------------------------------------------------

    def keep(self, core_ids: Iterable[str]) -> None:
        """Those that are about to be ended are to leave with their KV."""
        self._leaving.update(core_ids)

    def take_kept(self) -> dict[str, int]:
        """Tokens of those that have left since it was asked last; 0 where nothing of it was computed."""
        kept, self._kept = self._kept, {}
        return kept

    def on_new_request(self, request: Any) -> None:
        """Whether it comes back with KV stands in its parameters."""
        num_tokens = (request.kv_transfer_params or {}).get(KEPT_TOKENS)
        if num_tokens:
            self._coming[request.request_id] = num_tokens

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """The last token known is always computed: what comes next is drawn from it."""
        num_tokens = min(self._coming.get(request.request_id, 0), request.num_tokens - 1)
        return max(0, num_tokens - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """It begins; should it be preempted, it is computed like any other."""
        num_kept = self._coming.pop(request.request_id, 0)
        if not num_external_tokens:
            return
        num_tokens = min(num_kept, request.num_tokens - 1)
        first, end = (num_tokens - num_external_tokens) // self._block_size, self._num_blocks(num_tokens)
        (table,) = blocks.get_block_ids()
        self._moves.back.append(KeptMove(request.request_id, self._num_blocks(num_kept), list(table[first:end])))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """True: its blocks stay until they are copied."""
        core_id = request.request_id
        self._coming.pop(core_id, None)
        if core_id not in self._leaving:
            return False, None
        self._leaving.discard(core_id)
        num_tokens = max(0, request.num_computed_tokens - request.num_in_flight_tokens)
        if not num_tokens:
            self._kept[core_id] = 0
            return False, None
        num_blocks = self._num_blocks(num_tokens)
        self._moves.out.append(KeptMove(core_id, num_blocks, list(block_ids[:num_blocks])))
        self._moving[core_id] = num_tokens
        return True, None

    def build_connector_meta(self, scheduler_output: Any) -> KeptMoves:
        """What the workers are to move in this step."""
        del scheduler_output
        moves, self._moves = self._moves, KeptMoves()
        return moves

    def update_connector_output(self, connector_output: Any) -> None:
        """All workers have copied these."""
        for core_id in connector_output.finished_sending or ():
            self._kept[core_id] = self._moving.pop(core_id)

    def reset_cache(self) -> None:
        """Nothing: what is kept is the engine's."""

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    # --- in a worker --------------------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """By layer."""
        self._mover.register(kv_caches, self._kv_cache_config.num_blocks)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """All at once, and in this order: a request that comes may have got the blocks of one that leaves."""
        del forward_context, kwargs
        moves = self._get_connector_metadata()
        for move in moves.out:
            self._mover.out(move)
        for move in moves.back:
            self._mover.back(move)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], None]:
        """Those whose blocks may be given to others."""
        del finished_req_ids
        return self._mover.take_moved(), None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Of this step."""
        return self._mover.take_failed()

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is under way any more."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Only a request that leaves is copied, whole."""

    def wait_for_save(self) -> None:
        """Nothing is under way any more."""
