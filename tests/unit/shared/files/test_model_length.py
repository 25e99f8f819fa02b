"""How long a request may be: as the files say, as far as the memory of every node goes that can serve the model."""

from __future__ import annotations

import pytest

from shared.config import hardware
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodePool, NodeSpec
from shared.files.model_length import KvSizes, ModelSizes, model_length

MIB = 1 << 20
SIZES = ModelSizes(context_length=8192, kv=KvSizes(num_layers=2, num_kv_heads=4, head_dim=32))
"""1,024 bytes of KV a token in bfloat16."""
CPU, SLOW = NodeSpec(name="a"), NodeSpec(name="b", executor="reference")


def length(*nodes: NodeSpec | NodePool, sizes: ModelSizes = SIZES, said: int | None = None, **options: int) -> int:
    spec = ModelSpec(name="m", source="m.gguf", max_model_len=said)
    return model_length(spec, sizes, nodes, EngineOptions(**options))  # type: ignore[arg-type]


def test_a_number_in_the_configuration_is_taken_as_it_is() -> None:
    assert length(CPU, said=100_000, kv_cache_bytes=MIB) == 100_000


def test_it_is_what_the_files_say_where_memory_allows() -> None:
    assert length(CPU) == 8192
    assert length() == 8192


def test_one_request_of_that_length_fits_into_the_memory_of_every_node() -> None:
    assert length(CPU, kv_cache_bytes=MIB) == 1024
    assert length(CPU, SLOW, kv_cache_bytes=MIB) == 512, "float32"
    pool = NodePool(name="p", executor="reference")
    assert length(CPU, pool, kv_cache_bytes=MIB) == 512


def test_blocks_are_whole_and_models_that_share_have_equal_parts() -> None:
    assert length(CPU, kv_cache_bytes=MIB + 20_000, block_size=256) == 1024
    assert length(CPU, kv_cache_bytes=8 * MIB, max_models=2) == 4096
    assert length(CPU, kv_cache_bytes=10 * MIB, max_models=2) == 4096, "five pages, of which two are its part"


def test_vllm_cuts_larger_blocks_of_which_one_is_its_own() -> None:
    vllm = NodeSpec(name="a", engine="vllm")
    assert length(vllm, kv_cache_bytes=MIB, max_models=2) == 896, "seven of eight blocks of 128 tokens"
    assert length(NodeSpec(name="b", engine="vllm", device="cuda:0")) == 8192, "what is left is not known here"


def test_devices_that_share_the_heads_share_the_memory_of_a_token() -> None:
    both = NodeSpec(name="a", executor="reference", tensor_parallel=2)
    assert length(both, kv_cache_bytes=MIB) == 1024


def test_what_a_device_leaves_beside_the_weights_is_not_known_here() -> None:
    cuda = NodeSpec(name="a", executor="cuda", device="cuda:0")
    assert length(cuda) == 8192
    assert length(cuda, kv_cache_bytes=MIB) == 1024


def test_a_size_of_the_catalogue_has_what_its_device_leaves_it() -> None:
    long = ModelSizes(context_length=1_000_000, kv=None)
    spec = ModelSpec(name="m", source="m.gguf", predict_as="mistral-7b")
    nodes = [NodeSpec(name=kind, executor="predicted", device=kind) for kind in ("a10", "a100")]
    a10, a100 = (
        hardware.kv_tokens(hardware.device_named(kind), hardware.model_named("mistral-7b")) for kind in ("a10", "a100")
    )
    assert model_length(spec, long, nodes, EngineOptions()) == a10 // 16 * 16
    assert model_length(spec, long, nodes[1:], EngineOptions()) == a100 // 16 * 16


def test_a_node_that_cannot_serve_the_model_at_all_does_not_count() -> None:
    spec = ModelSpec(name="m", source="m.gguf", predict_as="llama-70b")
    nodes = [NodeSpec(name=kind, executor="predicted", device=kind) for kind in ("a10", "a100")]
    assert model_length(spec, SIZES, nodes, EngineOptions()) == 8192


@pytest.mark.parametrize("world", [8, 64])
def test_more_devices_than_heads_are_the_node_s_to_refuse(world: int) -> None:
    node = NodeSpec(name="a", executor="reference", tensor_parallel=world)
    assert length(node, CPU) == 8192
