"""A served GGUF file as a Hugging Face directory in bfloat16, which is what other engines read."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging


def export_model(source: Path, folder: Path) -> None:
    """Write configuration, weights and tokenizer of the GGUF file ``source`` into ``folder``."""
    logging.disable_progress_bar()  # a moment's work
    fields = load_gguf_checkpoint(str(source), return_tensors=False)["config"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields))
    tensors = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)["tensors"]
    missing = model.load_state_dict(tensors, strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, f"weights that {source.name} does not have: {missing}"
    model.tie_weights()
    model.bfloat16().save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
