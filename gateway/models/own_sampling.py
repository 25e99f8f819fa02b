"""How a model's authors have its tokens drawn, as its files say: what requests that do not say so are given.

As vLLM does by default: of ``generation_config.json`` what it has of temperature, top_p, top_k, min_p and
repetition_penalty (whatever ``do_sample`` says), of a GGUF file ``general.sampling``. The cluster's configuration goes
before it, field by field, and a request before both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace

from pydantic import TypeAdapter, ValidationError

from shared.config.engines.sampling import SamplingDefaults
from shared.vocabulary.model_fields import ModelFields

HF_NAMES = {name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_DEFAULTS: TypeAdapter[SamplingDefaults] = TypeAdapter(SamplingDefaults)


def own_sampling(configured: SamplingDefaults, file: ModelFields | None, names: Mapping[str, str]) -> SamplingDefaults:
    """What is configured, and for what is not what the file says under these ``names``.

    `ModelFileError` where that cannot be: with the field to configure instead.
    """
    found = {} if file is None else {ours: file.values.get(theirs) for ours, theirs in names.items()}
    if found.get("top_k") == -1:  # transformers and vLLM write so that all are kept
        found["top_k"] = 0
    given = {field.name: getattr(configured, field.name) for field in fields(configured)}
    wanted = {name: value for name, value in found.items() if given[name] is None and value is not None}
    if file is None or not wanted:
        return configured
    try:
        own = _DEFAULTS.validate_json(json.dumps(wanted), strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        raise file.error(
            f"{names[name]} is {problem['input']!r}: {problem['msg'].lower()}; set sampling.{name} of the model instead"
        ) from error
    return replace(own, **{name: value for name, value in given.items() if value is not None})
