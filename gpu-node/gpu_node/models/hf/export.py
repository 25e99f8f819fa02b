"""A GGUF file as a directory in Hugging Face layout, which other engines read: ``python -m … SOURCE DIRECTORY``.

Started by `treadle models export`. Weights become bfloat16. `transformers` reads the file and writes the directory, so
that what is written is what others expect.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shared.files.model_file import ModelFileError


def export_model(source: Path, folder: Path) -> None:
    """Write configuration, weights and tokenizer of the GGUF file ``source`` into ``folder``."""
    try:
        import torch  # noqa: F401 - without it transformers fails later, and not in a word
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
        from transformers.utils import logging
    except ImportError as error:
        needs = "to export a model needs torch and transformers"
        raise ModelFileError(f"{needs}: {error}; run `make setup-torch` and `pip install transformers`") from error
    logging.disable_progress_bar()  # a moment's work
    fields = load_gguf_checkpoint(str(source), return_tensors=False)["config"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields))
    tensors = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)["tensors"]
    missing = set(model.load_state_dict(tensors, strict=False).missing_keys) - {"lm_head.weight"}
    if missing:
        raise ModelFileError(f"{source}: weights that the file does not have: {', '.join(sorted(missing))}")
    model.tie_weights()
    model.bfloat16().save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    for file in folder.iterdir():  # the weights are written for the eyes of this user alone
        file.chmod((folder / "config.json").stat().st_mode)


def main() -> int:
    """Exit status 2 for what the user can put right."""
    source, folder = map(Path, sys.argv[1:])
    try:
        export_model(source, folder)
    except ModelFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
