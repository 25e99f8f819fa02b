"""Which builder makes the programs of which family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu_node.graph.program import Program
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.encoder import build_encoder
from gpu_node.models.architectures.gpt2 import build_gpt2
from gpu_node.models.architectures.headless import with_head, without_head
from gpu_node.models.architectures.llama import build_llama
from gpu_node.models.architectures.mistral import build_mistral
from gpu_node.models.architectures.mixtral import build_mixtral
from gpu_node.models.architectures.opt import build_opt
from gpu_node.models.architectures.qwen2 import build_qwen2
from gpu_node.models.architectures.qwen3 import build_qwen3
from gpu_node.models.config import Family, ModelConfig
from shared.config.engines.engine import ModelTask

_BUILDERS: Mapping[Family, Callable[[ModelConfig], Program]] = {
    Family.LLAMA: build_llama,
    Family.MISTRAL: build_mistral,
    Family.QWEN2: build_qwen2,
    Family.QWEN3: build_qwen3,
    Family.MIXTRAL: build_mixtral,
    Family.OPT: build_opt,
    Family.GPT2: build_gpt2,
}


def build_program(config: ModelConfig, task: ModelTask = "generate", head: Weight | None = None) -> Program:
    """The program of a model for what it is served for, checked; ``head`` of one that scores.

    Of an encoder, whatever the task, that which embeds by means: `gpu_node.models.served_program` knows all of its.
    """
    program = build_encoder(config) if config.is_encoder else _of_decoder(config, task, head)
    program.check()
    return program


def _of_decoder(config: ModelConfig, task: ModelTask, head: Weight | None) -> Program:
    program = _BUILDERS[config.family](config)
    if task == "embed":
        return without_head(program)
    if task in ("score", "classify"):
        assert head is not None, "a model that scores or classifies has a head of its own"
        return with_head(program, head)
    return program
