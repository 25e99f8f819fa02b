"""How long a request of a model may be, prompt and answer together: as its files say, as far as memory goes.

A number in the configuration is taken as it is. Gateways, `treadle config check` and nodes ask here, so they agree.
What a node measures at run time (KV on an NVIDIA device) is not known here: that node tells who asks for more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.config import hardware
from shared.config.engines.engine import MIN_MODEL_LEN, EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeTemplate
from shared.files.encoder import step_length
from shared.files.kv_paging import room_tokens

KV_NUMBER_BYTES = {"cpu": 2, "cuda": 2, "reference": 4, "vllm": 2}
"""Of a number of the KV cache, by kind of node; what is predicted has the sizes of `shared.config.hardware`."""


VLLM_BLOCK_TOKENS = 128
"""Of a block of vLLM's on processors; elsewhere it cuts smaller ones, so that a little more fits than is said here."""


@dataclass(frozen=True, slots=True)
class KvSizes:
    """What there is to keep of a token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    def token_bytes(self, number_bytes: int, world: int = 1) -> int:
        """Keys and values of a token, where ``world`` devices share the heads."""
        return 2 * self.num_layers * (self.num_kv_heads // world) * self.head_dim * number_bytes


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a model's files say about lengths."""

    context_length: int
    """Tokens that it was trained for; of an encoder, and one more (`shared.files.encoder.max_length`)."""
    kv: KvSizes | None
    """None where they only hold a vocabulary, which serves nodes that predict a size of the catalogue."""
    is_encoder: bool = False
    """Whether its texts are computed in one step each."""


def model_length(spec: ModelSpec, sizes: ModelSizes, nodes: Iterable[NodeTemplate], options: EngineOptions) -> int:
    """Tokens that every node can hold which can serve the model at all."""
    if spec.max_model_len is not None:
        return spec.max_model_len
    templates = list(nodes)
    rooms = [room for node in templates if (room := node_room_tokens(spec, sizes, node, options)) is not None]
    length = min([sizes.context_length, *(room for room in rooms if room >= MIN_MODEL_LEN)])
    is_one_step = sizes.is_encoder and any(node.kind != "vllm" for node in templates)
    return min(length, step_length(options)) if is_one_step else length


def node_room_tokens(spec: ModelSpec, sizes: ModelSizes, node: NodeTemplate, options: EngineOptions) -> int | None:
    """The longest request that a node has KV memory for; None where only the node can tell, when it has loaded it."""
    if node.executor == "predicted":
        if spec.predict_as is None:
            return None  # it depends on the size of its weights
        shape, device = hardware.model_named(spec.predict_as), hardware.device_named(node.device)
        kv_bytes, token_bytes = int(hardware.kv_bytes(device, shape)), shape.kv_token_bytes
    else:
        on_device = node.executor == "cuda" or bool(node.cuda_devices)
        if sizes.kv is None or (on_device and options.kv_cache_bytes is None):
            return None  # no node can load it, or KV is what is left beside weights and steps
        kv_bytes = options.unmeasured_kv_bytes
        token_bytes = sizes.kv.token_bytes(KV_NUMBER_BYTES[node.kind], node.tensor_parallel)
    if token_bytes == 0:
        return 0  # more devices than heads: the node refuses it in words of its own
    if node.kind == "vllm":  # one of its blocks holds nothing, ever
        return max(0, kv_bytes // (VLLM_BLOCK_TOKENS * token_bytes) - 1) * VLLM_BLOCK_TOKENS
    return room_tokens(kv_bytes, options.max_models, options.num_sharing, options.block_size, token_bytes)
