"""What the tokenizers library raises over a model's files, its panics included."""

from __future__ import annotations

import pytest
from tokenizers import models

from gateway.models.tokenizer.library import refusing
from shared.files.model_file import ModelFileError


def test_an_error_and_a_panic_of_the_library_are_the_same_refusal() -> None:
    with (
        pytest.raises(ModelFileError, match=r"^merges of m\.gguf: Error while initializing BPE: .*zz"),
        refusing("merges of m.gguf"),
    ):
        models.BPE(vocab={"a": 0}, merges=[("zz", "a")])
    vocab = {"a": 0, "b": 1, "ab": 2}
    with pytest.raises(ModelFileError, match=r"^merges of m\.gguf: .*range"), refusing("merges of m.gguf"):
        models.BPE(vocab=vocab, merges=[("a", "b")], continuing_subword_prefix="###")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_process_passes(kind: type[BaseException]) -> None:
    with pytest.raises(kind), refusing("merges"):
        raise kind
