"""Whether what came is what the storage has, by whatever it says of the whole object."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

_READ_BYTES = 1 << 20
_MD5 = re.compile(r"[0-9a-f]{32}")
_ENCRYPTED = ("aws:kms", "aws:kms:dsse")
"""By keys of which the ETag tells nothing."""
EXPRESS_SUFFIX = "--x-s3"
"""Of buckets of S3 Express One Zone, whose ETags are drawn."""


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32:
    """As `hashlib`'s digests are."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        """Behind what came before."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Four bytes, the highest first."""
        return self._value.to_bytes(4)


_CHECKSUMS: dict[str, Callable[[], _Digest]] = {
    "ChecksumSHA512": hashlib.sha512,
    "ChecksumSHA256": hashlib.sha256,
    "ChecksumSHA1": lambda: hashlib.sha1(usedforsecurity=False),
    "ChecksumCRC32": _Crc32,
}


class ContentCheck:
    """A content as it comes, held against a checksum of all of it, or its ETag where that is an MD5 digest.

    An object that was uploaded in parts often has neither: then its size alone is known.
    """

    def __init__(self, facts: Mapping[str, Any], bucket: str) -> None:
        """``facts`` are S3's answer about the object: its fields by botocore's names."""
        self._kind, self._digest, self._expected = _best(facts, bucket)

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
        """What differs, when all is there; "" where nothing does."""
        if self._digest is None or self._digest.digest() == self._expected:
            return ""
        return f"its {self._kind} is not what the storage says"


def _best(facts: Mapping[str, Any], bucket: str) -> tuple[str, _Digest | None, bytes]:
    for name, begin in _CHECKSUMS.items():
        told = str(facts.get(name, ""))
        if told and "-" not in told:  # else it is of the checksums of parts
            return name.removeprefix("Checksum"), begin(), base64.b64decode(told)
    etag = str(facts.get("ETag", "")).strip('"')
    is_encrypted = facts.get("ServerSideEncryption") in _ENCRYPTED or "SSECustomerAlgorithm" in facts
    if _MD5.fullmatch(etag) and not is_encrypted and not bucket.endswith(EXPRESS_SUFFIX):
        return "MD5", hashlib.md5(usedforsecurity=False), bytes.fromhex(etag)
    return "", None, b""
