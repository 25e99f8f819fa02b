"""Where a model or an adapter comes from: what its ``source`` in the configuration may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

PREFIX = "pypi:"
HUB_PREFIX = "hf:"
BUCKET_PREFIX = "s3:"
_HUB_KIND = "hf:ORG/NAME@COMMIT"
_BUCKET_KIND = "s3://BUCKET/PREFIX/"
_BUCKET_FILE_KIND = "s3://BUCKET/KEY.gguf"
_KINDS = (
    f"a GGUF file, a directory in Hugging Face layout, {_HUB_KIND} with or without /FILE.gguf, {_BUCKET_KIND}, "
    f"{_BUCKET_FILE_KIND}, or pypi:PACKAGE==VERSION/PATH/IN/WHEEL"
)
_ADAPTER_KIND = f"a directory in PEFT's layout, {_HUB_KIND}, or {_BUCKET_KIND}"
# the package part goes to pip's command line: nothing in it may look like an option, a path or an address
_PATTERN = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)/(?P<member>.+)"
)
_HUB_PATTERN = re.compile(
    r"hf:(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)@(?P<commit>[0-9a-f]{40})(?:/(?P<member>.+))?"
)
_BUCKET_PATTERN = re.compile(
    r"s3://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,254})/(?P<key>[^?\x00-\x1f\x7f]*)"
    r"(?:\?(?P<pin>etag|versionId)=(?P<value>[A-Za-z0-9._+/=-]{1,1024}))?"
)
_LISTING_DIGEST = re.compile(r"[0-9a-f]{64}")
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


@dataclass(frozen=True)
class BucketModel:
    """Objects in a bucket of a storage that speaks S3: those below a prefix that a model is made of, or a GGUF file."""

    bucket: str
    key: str
    """Of the file; of a directory the prefix of its keys, which ends with / or is empty."""
    etag: str = ""
    """What was pinned: a file's ETag, or the digest of a directory's listing; "" where whatever is there is meant."""
    version: str = ""
    """Of a file in a bucket that keeps versions, by which it was pinned."""

    @property
    def is_directory(self) -> bool:
        """Whether a prefix was named."""
        return not self.key or self.key.endswith("/")

    @property
    def is_pinned(self) -> bool:
        """Whether it is the same whenever it is fetched."""
        return bool(self.etag or self.version)

    @property
    def address(self) -> str:
        """Where it lies, for people."""
        return f"s3://{self.bucket}/{self.key}"


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


def bucket_model(source: str) -> BucketModel:
    """Take ``s3://BUCKET/PREFIX/`` or ``s3://BUCKET/KEY.gguf`` apart, with or without what pins it.

    `ModelSourceError` for anything else. Its text shows nothing of the source: who writes keys or signatures into an
    address finds them in no log.
    """
    match = _BUCKET_PATTERN.fullmatch(source)
    if match is None:
        raise ModelSourceError(
            f"expected {_BUCKET_KIND} (a directory) or {_BUCKET_FILE_KIND}, with or without ?etag=…, or of a file "
            "?versionId=…; credentials and endpoint come from the environment of AWS's tools"
        )
    model = BucketModel(
        match["bucket"],
        match["key"],
        etag=match["value"] if match["pin"] == "etag" else "",
        version=match["value"] if match["pin"] == "versionId" else "",
    )
    if model.key and not is_plain_path(model.key.removesuffix("/")):
        raise ModelSourceError(f"{model.address!r}: the key is no plain path")
    if not (model.is_directory or model.key.endswith(".gguf")):
        raise ModelSourceError(f"{model.address!r}: the prefix of a directory ends with /, a file's key with .gguf")
    if model.is_directory and model.version:
        raise ModelSourceError(
            f"{model.address!r}: versionId is of one file; `treadle models pin` tells a directory's etag"
        )
    if model.is_directory and model.etag and not _LISTING_DIGEST.fullmatch(model.etag):
        raise ModelSourceError(
            f"{model.address!r}: a directory's etag has 64 hexadecimal digits, and `treadle models pin` tells it"
        )
    return model


def is_fetched(source: str) -> bool:
    """Whether it is fetched from elsewhere; else it is a path of this machine."""
    return source.startswith((PREFIX, HUB_PREFIX, BUCKET_PREFIX))


def fetched_name(source: str) -> str:
    """What the file or directory of a source that is fetched is called on this machine; well-formed or not."""
    if source.startswith(BUCKET_PREFIX):
        source = source.partition("?")[0].rstrip("/")
    return source.rpartition("/")[2]


def may_change(source: str, sha256: str | None) -> bool:
    """Whether two machines that fetch it at different times may get different files, unnoticed."""
    return source.startswith(BUCKET_PREFIX) and sha256 is None and not bucket_model(source).is_pinned


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
        if source.startswith(BUCKET_PREFIX):
            bucket_model(source)
            return ""
    except ModelSourceError as error:
        return str(error)
    return _path_problem(source, "model", _KINDS)


def adapter_source_problem(source: str) -> str:
    """The same of an adapter's, which is a directory."""
    try:
        if source.startswith(HUB_PREFIX):
            is_file = bool(hub_model(source).member)
            return f"{source!r}: an adapter is a directory; name {_HUB_KIND} alone" if is_file else ""
        if source.startswith(BUCKET_PREFIX):
            is_file = not bucket_model(source).is_directory
            return f"{source!r}: an adapter is a directory; name {_BUCKET_KIND}" if is_file else ""
    except ModelSourceError as error:
        return str(error)
    return _path_problem(source, "adapter", _ADAPTER_KIND)


def _path_problem(source: str, what: str, kinds: str) -> str:
    if not source.strip():
        return f"it is empty; name {kinds}"
    if address := _ADDRESS.match(source):
        return f"nothing is fetched from {address['scheme']}: addresses; download the {what} and name {kinds}"
    return ""
