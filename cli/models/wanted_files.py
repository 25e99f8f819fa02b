"""Which files of a directory elsewhere a model is made of; nothing among them that could run, and no weights twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_SUFFIXES = {".safetensors", ".json", ".jinja", ".txt", ".model"}
_FOLDERS = re.compile(r"additional_chat_templates|[0-9]+_[A-Za-z]+")
"""Of a model's own: more chat templates, and modules of embedding models; not other formats of the same weights."""
_WHOLE_AGAIN = re.compile(r"consolidated.*\.safetensors")
"""Mistral's repositories have all weights twice."""


def model_files(paths: Sequence[str]) -> list[str]:
    """Those of ``paths``, relative to the directory, that are fetched, in their order; none where there are no
    safetensors files among them."""
    wanted = [path for path in paths if _is_wanted(path)]
    weights = {path for path in wanted if path.endswith(".safetensors")}
    once = {path for path in weights if not _WHOLE_AGAIN.fullmatch(path)} or weights
    return [path for path in wanted if path not in weights or path in once] if weights else []


def _is_wanted(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    is_own = not folders or (len(folders) == 1 and _FOLDERS.fullmatch(folders[0]) is not None)
    return is_own and not name.startswith(".") and PurePosixPath(name).suffix in _SUFFIXES
