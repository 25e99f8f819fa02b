"""Whether a node could load a model, as far as its files and the configuration tell: asked before anything starts.

The reasons are those that the executors give: the same functions find them. What only a load can tell (the memory of
an NVIDIA device, of the host) is left to it.
"""

from __future__ import annotations

from dataclasses import replace

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.sizing import loaded_model
from gpu_node.executors.cpu.head_check import check_heads
from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.executors.unguessed import refuse_speculation
from gpu_node.graph.passes.adapt import adapt
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.graph.program import Program
from gpu_node.models.adapters.adapter_config import read_adapter_config
from gpu_node.models.adapters.adapters import open_adapters, opened_adapters
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.encoder_check import check_encoder
from gpu_node.models.pooling.pooled_directory import read_pooled
from gpu_node.models.served_program import served_program
from gpu_node.models.weights.weight_check import check_weights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeTemplate
from shared.files.model_file import ModelFileError, model_path
from shared.files.model_length import KV_NUMBER_BYTES

_WEIGHT_BYTES = {("cpu", "bfloat16"): 2, ("cpu", "int8"): 1, ("reference", "bfloat16"): 4, ("reference", "int8"): 4}
"""Of a number of the weights in host memory, by executor and type."""


def load_problem(spec: ModelSpec, node: NodeTemplate, options: EngineOptions, memory_bytes: int) -> str:
    """Why the node, on a machine with so much memory, cannot load the model, whose file is there; ``""`` if it can."""
    try:
        adapters = tuple(replace(one, sha256=None) for one in spec.adapters)
        _check(replace(spec, sha256=None, adapters=adapters), node, options, memory_bytes)
    except (ModelFileError, ModelTooLargeError) as error:
        return str(error)
    return ""


def _check(spec: ModelSpec, node: NodeTemplate, options: EngineOptions, memory_bytes: int) -> None:
    if node.kind == "vllm":
        _check_for_vllm(spec, node.tensor_parallel)
        return
    if node.executor == "predicted":
        VirtualExecutor(node.device, options).load_model(spec)
        return
    checkpoint = open_checkpoint(model_path(spec))
    config = checkpoint.config
    if node.executor == "cuda":
        refuse_speculation(spec, checkpoint.path)
    if node.executor == "cpu":
        check_heads(checkpoint)
    world = node.tensor_parallel
    check_encoder(spec, checkpoint, options, world)
    plain = served_program(spec, checkpoint)
    try:
        program = tensor_parallel(plain, 0, world)
    except IndivisibleError as error:
        raise ModelFileError(f"{checkpoint.path}: {error}") from error
    if spec.load_format == "auto":
        check_weights(checkpoint, plain)
    adapters = open_adapters(spec, checkpoint, plain)
    program = adapt(program, adapters.ranks, len(adapters.names))
    if node.executor != "cuda":
        _check_memory(spec, program, _WEIGHT_BYTES[node.executor, spec.weights], memory_bytes)
    if node.executor != "cuda" or options.kv_cache_bytes is not None:
        own = replace(config, num_kv_heads=config.num_kv_heads // world)
        loaded_model(spec, own, options, KV_NUMBER_BYTES[node.executor], kv_layout="")


def _check_for_vllm(spec: ModelSpec, num_ranks: int) -> None:
    """What can be told without vLLM; the rest it tells itself, when the model is to be loaded."""
    path = model_path(spec)
    if not path.is_dir():
        raise ModelFileError(
            f"{path}: vLLM reads directories in Hugging Face layout alone; `treadle models export` makes one of it"
        )
    if spec.task != "generate":
        read_pooled(spec, path, num_ranks)
    if spec.speculation is not None:
        raise ModelFileError(f"model {spec.name!r}: speculation is for nodes with engine: treadle; leave it out")
    if spec.weights != "bfloat16":
        raise ModelFileError(
            f"model {spec.name!r}: weights: {spec.weights} is made by engine: treadle; vLLM takes weights that are "
            "stored quantised, as their directory says"
        )
    opened_adapters(spec, lambda _, path: read_adapter_config(path))


def _check_memory(spec: ModelSpec, program: Program, number_bytes: int, memory_bytes: int) -> None:
    """A part of the model has to fit into the whole machine; whether there is room beside others, a load tells."""
    weight_bytes = sum(weight.num_numbers for weight in program.weights) * number_bytes
    if weight_bytes > memory_bytes:
        raise ModelTooLargeError(
            f"model {spec.name!r}: its weights take {weight_bytes / 1e9:.3g} GB, and this machine has "
            f"{memory_bytes / 1e9:.3g} GB of memory; take a smaller model, or weights: int8 with executor: cpu"
        )
