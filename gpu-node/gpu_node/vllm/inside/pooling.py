"""Models that embed or score in vLLM: what its pooling runner is started with, and what it is asked of each text.

Rows go out as they are, states of the last norm or logits: lengths of 1 and scores are made at the gateway, of ours and
of these alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from gpu_node.models.pooling.pooled_directory import read_pooled
from gpu_node.vllm.words.vllm_names import EngineArgs, PoolerConfig, PoolingParams
from shared.config.engines.engine import ModelSpec, ModelTask

_MODES: Final = {"lasttoken": "LAST", "mean": "MEAN", "cls": "CLS"}
_ASKED: Final[dict[ModelTask, str]] = {"embed": "embed", "score": "classify"}
"""In vLLM's words."""
_SHIFTED: Final = ("camembert", "roberta", "xlm-roberta")


def pooling_arguments(spec: ModelSpec, path: Path, num_ranks: int, overrides: dict[str, Any]) -> dict[str, Any]:
    """Beside those that models of text have, of a model that embeds or scores; of any other none.

    ``overrides``: what the node changes in configurations of models. `ModelFileError` where it does so in a way that
    vLLM does not have.
    """
    if spec.task == "generate":
        return {}
    pooled = read_pooled(spec, path, num_ranks)
    arguments: dict[str, Any] = {"runner": "pooling", "convert": _ASKED[spec.task], "pooler_config": PoolerConfig()}
    if pooled.mode is not None:
        arguments["pooler_config"] = PoolerConfig(seq_pooling_type=_MODES[pooled.mode])
    if pooled.labels is None:
        return arguments
    rows = {"method": "no_post_processing", "classifier_from_token": list(pooled.labels)}
    return arguments | {"hf_overrides": overrides | rows}


def hold_whole_texts(arguments: EngineArgs) -> None:
    """A text whose tokens see those behind them, or are all pooled, is computed in one step: so its step has room.

    Positions of RoBERTa and its kin begin behind that of padding, which vLLM does not count: a text that is too long
    would end its core. `ValueError` where longer ones are configured.
    """
    model = arguments.create_model_config()
    if model.is_chunked_prefill_supported:
        return
    if model.hf_config.model_type in _SHIFTED:
        num_positions = model.hf_config.max_position_embeddings - model.hf_config.pad_token_id - 1
        if arguments.max_model_len > num_positions:
            raise ValueError(f"it has positions for {num_positions} tokens; set max_model_len: {num_positions}")
        arguments.max_model_len = min(model.max_model_len, num_positions)
    arguments.max_num_batched_tokens = max(arguments.max_num_batched_tokens, model.max_model_len)


def pooling_params(task: ModelTask) -> PoolingParams:
    """Of one text."""
    return PoolingParams(task=_ASKED[task], use_activation=False)
