"""A head beside an embedding that is said to be the head: then most files that have both have the same twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpu_node.models.hf.mapped_file import MappedFile
from shared.files.model_file import ModelFileError

NUM_ROWS = 64
"""That are compared, evenly spread: a head of its own differs in all of them."""


def check_tied(head: tuple[Path, str], embedding: tuple[Path, str]) -> None:
    """Files and names of both tensors. `ModelFileError` where they differ: readers then take the one or the other."""
    (head_path, head_name), (path, name) = head, embedding
    one, other = MappedFile(head_path), MappedFile(path)
    if one.kind(head_name) == other.kind(name):
        rows, expected = one.rows(head_name), other.rows(name)
        places = np.linspace(0, len(rows) - 1, NUM_ROWS).astype(int)
        if np.array_equal(rows[places], expected[places]):
            return
    raise ModelFileError(
        f"{head_path}: tensor {head_name} is not the embedding {name}, and config.json says that it is; set "
        "tie_word_embeddings: false there, or take the tensor out"
    )
