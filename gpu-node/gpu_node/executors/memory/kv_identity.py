"""What makes keys and values what they are: blocks of equal tokens hold the same only where all of this is the same."""

from __future__ import annotations

from shared.config.engine import EngineOptions, ModelSpec
from shared.files.model_file import weights_digest


def kv_identity(spec: ModelSpec, options: EngineOptions, kv_layout: str) -> str:
    """Of a model whose blocks have the named layout; the model's name is no part of it, its adapters' are.

    Empty where no block outlives its place on the device: then nobody asks, and no file is read for it.
    """
    if not options.tiers.host_bytes:
        return ""
    weights = f"{weights_digest(spec)} {spec.load_format} {spec.weights}"
    weights += "".join(f", adapter {one.name} {weights_digest(one)}" for one in spec.adapters)
    return f"weights {weights}, kv {kv_layout}, {options.block_size} tokens a block"
