"""The CUDA device checks no guessed tokens, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_node.executors.cuda.executor import CudaExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.speculation import SpeculationOptions
from shared.files.model_file import ModelFileError
from tests.gpu_node.kernels.triton.buffers import DEVICE


def test_a_model_whose_tokens_are_to_be_guessed_is_refused(tiny_path: Path) -> None:
    spec = ModelSpec("tiny", str(tiny_path), max_model_len=64, speculation=SpeculationOptions("ngram"))
    with pytest.raises(ModelFileError, match="executor: cpu and reference alone; leave it out"):
        CudaExecutor(EngineOptions(kv_cache_bytes=1 << 20), DEVICE).load_model(spec)
