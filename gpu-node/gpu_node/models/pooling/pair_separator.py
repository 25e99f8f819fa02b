"""By which token an encoder tells the two texts of a pair apart, where it has an embedding for each (BERT's segments).

A request is token ids alone, so a row's segment is read from those before it: it is of the first text up to the first
separator, itself included, and of the second behind that, as the post-processor of BERT's tokenizer has it. What a
client writes stays plain text (the gateway's rule of trust), so only the pair's form writes a separator.
"""

from __future__ import annotations

from gpu_node.models.architectures.bert import NO_SEPARATOR
from gpu_node.models.checkpoint import Checkpoint
from shared.files.model_file import ModelFileError
from shared.vocabulary.gguf_encoder import encoder_files
from shared.vocabulary.hf_vocabulary import HfFiles, read_vocabulary
from shared.vocabulary.text_edges import text_edges
from shared.vocabulary.token_texts import read_files


def pair_separator(checkpoint: Checkpoint) -> int:
    """Its id; `NO_SEPARATOR` where the model has one segment, or its tokenizer puts both texts into the first.

    `ModelFileError` where its files say nothing of pairs, or cut segments elsewhere.
    """
    if checkpoint.config.num_segments < 2:
        return NO_SEPARATOR
    files = _files(checkpoint)
    edges = text_edges(files, read_vocabulary(files))
    if not edges.between_ids:
        raise ModelFileError(
            f"{files.tokenizer.path}: its post_processor does not say how two texts are put together, so task: score "
            "cannot tell them apart; save the tokenizer anew with one that has a pair"
        )
    if edges.has_segments is None:
        raise ModelFileError(
            f"{files.tokenizer.path}: its post_processor gives the tokens of a pair the types {edges.pair_segments}; "
            "supported are 0 up to the first token between the texts and 1 behind it, or 0 alone"
        )
    return edges.between_ids[0] if edges.has_segments else NO_SEPARATOR


def _files(checkpoint: Checkpoint) -> HfFiles:
    if checkpoint.gguf is None:
        return read_files(checkpoint.path)
    return encoder_files(checkpoint.gguf, checkpoint.path)
