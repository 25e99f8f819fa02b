"""Whether two machines have the same weights, asked without reading all of them: no load waits for a digest."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import ModelFileError, model_path

NUM_SAMPLES = 64
"""Of a file: weights that were trained on differ in nearly all numbers; one changed layer of sixty is met, too."""
SAMPLE_BYTES = 4096
DIGEST_BYTES = 16
_KINDS = {".bin", ".json", ".pt", ".safetensors"}
"""Of files in a directory; vLLM reads some that our own engine refuses."""


def fingerprint(spec: ModelSpec | AdapterSpec) -> str:
    """Of a model's or adapter's files, which are there: their configured digest, else made of their names, sizes and
    samples of their content. `ModelFileError` where one cannot be read.

    It is there against mistakes, such as an update of some of the nodes, and not against those who forge files.
    """
    if spec.sha256 is not None:
        return spec.sha256
    path = model_path(spec)
    digest = blake2b(digest_size=DIGEST_BYTES)
    try:
        for name, file in _files(path) if path.is_dir() else [("", path)]:
            digest.update(os.fsencode(f"{name}\n"))  # it need be no text
            _sample(file, digest)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    return digest.hexdigest()


def _files(directory: Path) -> list[tuple[str, Path]]:
    """What a model is made of, by name; hidden files say how it came there."""
    shown = (file for file in directory.iterdir() if not file.name.startswith("."))
    return sorted((file.name, file) for file in shown if file.suffix in _KINDS and file.is_file())


def _sample(path: Path, digest: blake2b) -> None:
    """The whole of a small file; of a large one its beginning, its end and what lies evenly between."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        num_bytes = os.fstat(fd).st_size
        digest.update(num_bytes.to_bytes(8))
        last = max(0, num_bytes - SAMPLE_BYTES)
        steps = min(NUM_SAMPLES - 1, -(-last // SAMPLE_BYTES))
        for number in range(steps + 1):
            digest.update(os.pread(fd, SAMPLE_BYTES, last * number // max(steps, 1)))
    finally:
        os.close(fd)
