"""By which token an encoder tells the two texts of a pair apart, where it has an embedding for each (BERT's segments).

A request is token ids alone, so a row's segment is read from those before it: it is of the first text up to the first
separator, itself included, and of the second behind that. Whatever a client writes stays plain text (the gateway's rule
of trust), so nobody but the pair's form writes a separator.
"""

from __future__ import annotations

from gpu_node.models.architectures.encoder import NO_SEPARATOR
from gpu_node.models.checkpoint import Checkpoint
from shared.files.model_file import ModelFileError
from shared.vocabulary.hf_vocabulary import read_vocabulary
from shared.vocabulary.text_edges import text_edges
from shared.vocabulary.token_texts import read_files


def pair_separator(checkpoint: Checkpoint) -> int:
    """Its id; `NO_SEPARATOR` where the model has one segment. `ModelFileError` where its files say nothing of pairs."""
    if checkpoint.config.num_segments < 2:
        return NO_SEPARATOR
    files = read_files(checkpoint.path)
    between = text_edges(files, read_vocabulary(files)).between_ids
    if not between:
        raise ModelFileError(
            f"{files.tokenizer.path}: its post_processor does not say how two texts are put together, so task: score "
            "cannot tell them apart; save the tokenizer anew with one that has a pair"
        )
    return between[0]
