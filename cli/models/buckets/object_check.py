"""Whether what came is what the storage has, by whatever it says of the whole object."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_READ_BYTES = 1 << 20
_MD5 = re.compile(r"([0-9a-f]{32})(?:-([0-9]+))?")
_BASE64 = re.compile(r"([A-Za-z0-9+/]+=*)(?:-([0-9]+))?")
_ENCRYPTED = ("aws:kms", "aws:kms:dsse")
"""By keys of which the ETag tells nothing."""
EXPRESS_SUFFIX = "--x-s3"
"""Of buckets of S3 Express One Zone, whose ETags are drawn."""


class _Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32:
    """As `hashlib`'s digests are."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        """Behind what came before."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Four bytes, the highest first."""
        return self._value.to_bytes(4)


def _md5() -> _Digest:
    return hashlib.md5(usedforsecurity=False)


_CHECKSUMS: dict[str, Callable[[], _Digest]] = {
    "ChecksumSHA512": hashlib.sha512,
    "ChecksumSHA256": hashlib.sha256,
    "ChecksumSHA1": lambda: hashlib.sha1(usedforsecurity=False),
    "ChecksumCRC32": _Crc32,
}


class _DigestOfParts:
    """The digest of the digests of parts of ``part_bytes``, the last of what is left."""

    def __init__(self, begin: Callable[[], _Digest], part_bytes: int) -> None:
        self._begin, self._part_bytes = begin, part_bytes
        self._whole, self._part, self._num_bytes = begin(), begin(), 0

    def update(self, data: bytes | memoryview, /) -> None:
        """Behind what came before, across the ends of parts."""
        view = memoryview(data)
        while view:
            if self._num_bytes == self._part_bytes:
                self._whole.update(self._part.digest())
                self._part, self._num_bytes = self._begin(), 0
            taken = view[: self._part_bytes - self._num_bytes]
            self._part.update(taken)
            self._num_bytes += len(taken)
            view = view[len(taken) :]

    def digest(self) -> bytes:
        """When all is there, once."""
        self._whole.update(self._part.digest())
        return self._whole.digest()


@dataclass(frozen=True, slots=True)
class ToldDigest:
    """What a storage says that an object's content digests to."""

    kind: str
    begin: Callable[[], _Digest]
    expected: bytes
    num_parts: int
    """Of its upload, of whose digests this is the digest; 0 where it is that of the content itself."""


def told_digest(facts: Mapping[str, Any], bucket: str) -> ToldDigest | None:
    """The best of what ``facts``, S3's answer by botocore's names, tell of an object; of the content itself first."""
    found = list(_told(facts, bucket))
    return next((one for one in found if not one.num_parts), found[0] if found else None)


class ContentCheck:
    """A content as it comes, held against what was told of it."""

    def __init__(self, told: ToldDigest | None, part_bytes: int = 0) -> None:
        """``part_bytes``: of each part of the upload but the last, where ``told`` is of parts; 0 if nobody knows."""
        self._told = told if told and (part_bytes or not told.num_parts) else None
        self._digest: _Digest | None = None
        if self._told:
            begin = self._told.begin
            self._digest = _DigestOfParts(begin, part_bytes) if self._told.num_parts else begin()

    def update(self, content: bytes) -> None:
        """Take what follows."""
        if self._digest is not None:
            self._digest.update(content)

    def update_from(self, path: Path) -> None:
        """Take all of a file."""
        if self._digest is None:
            return
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                self._digest.update(chunk)

    def problem(self) -> str:
        """What differs, asked once when all is there; "" where nothing does, or nothing was told."""
        if self._told is None or self._digest is None or self._digest.digest() == self._told.expected:
            return ""
        return f"its {self._told.kind} is not what the storage says"


def _told(facts: Mapping[str, Any], bucket: str) -> Iterator[ToldDigest]:
    for name, begin in _CHECKSUMS.items():
        if found := _BASE64.fullmatch(str(facts.get(name, ""))):
            yield ToldDigest(name.removeprefix("Checksum"), begin, base64.b64decode(found[1]), int(found[2] or 0))
    is_encrypted = facts.get("ServerSideEncryption") in _ENCRYPTED or "SSECustomerAlgorithm" in facts
    found = _MD5.fullmatch(str(facts.get("ETag", "")).strip('"'))
    if found and not is_encrypted and not bucket.endswith(EXPRESS_SUFFIX):
        yield ToldDigest("MD5", _md5, bytes.fromhex(found[1]), int(found[2] or 0))
