"""Whether a model is a classifier of whole texts, by its files."""

from __future__ import annotations

from collections.abc import Mapping

CLASSIFIER_TENSOR = "cls.output.weight"
"""A re-ranker's head in a GGUF file: [labels, hidden size]."""
POOLER_TENSOR = "cls.weight"
"""The layer before that of an encoder: [hidden size, hidden size]."""
_CLASSIFIER = "ForSequenceClassification"
_DEFAULT_LABELS = 2  # of `transformers`, which leaves them out of the file


def num_labels_of(config: Mapping[str, object]) -> int | None:
    """How many labels its head has, by the ``config.json`` of a directory; None where it is no classifier."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not any(str(one).endswith(_CLASSIFIER) for one in architectures):
        return None
    labels, number = config.get("id2label"), config.get("num_labels")
    if isinstance(labels, dict):
        return len(labels)
    return number if isinstance(number, int) else _DEFAULT_LABELS
