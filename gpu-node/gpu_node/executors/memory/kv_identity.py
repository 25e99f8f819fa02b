"""What makes keys and values what they are: blocks of equal tokens hold the same only where all of this is the same."""

from __future__ import annotations

from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.fingerprint import fingerprint
from shared.files.model_file import weights_digest


def kv_identity(spec: ModelSpec, options: EngineOptions, kv_layout: str) -> str:
    """Of a model whose blocks have the named layout; the model's name is no part of it, its adapters' are.

    Empty where no block outlives its place on the device: then it is not used, and no file is read for it.
    """
    if not options.tiers.host_bytes:
        return ""
    weights = f"{weights_digest(spec)} {spec.load_format} {spec.weights}"
    weights += "".join(f", adapter {one.name} {weights_digest(one)}" for one in spec.adapters)
    return f"weights {weights}, kv {kv_layout}, {options.block_size} tokens a block"


def image_layout(spec: ModelSpec, kv_layout: str) -> str:
    """As `LoadedModel.kv_layout`: the named layout, and whose numbers lie in it."""
    return f"{kv_layout}, {image_weights(spec)}"


def image_weights(spec: ModelSpec) -> str:
    """Of the model's own weights, in the names of layouts: whose keys and values images hold. `ModelFileError`.

    What is restored from an image is offered to all requests that begin alike. So one that a node of other weights
    handed over, as nodes do that an update ends, must not be taken for one of these.
    """
    return f"weights {fingerprint(spec)} {spec.load_format} {spec.weights}"


def adapter_weights(spec: ModelSpec) -> tuple[str, ...]:
    """As `LoadedModel.adapter_layouts`: what layouts say, beside that, of blocks that an adapter has computed.

    So what others have computed is good for a node that has other adapters. `ModelFileError`.
    """
    return tuple(f", adapter {one.name} {fingerprint(one)}" for one in spec.adapters)
