"""Contents held against what a storage says of them, however they come."""

from __future__ import annotations

import base64
import hashlib
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.models.buckets.object_check import ContentCheck, told_digest

CONTENT = bytes(range(200))
SHA256 = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
CRC32 = base64.b64encode(zlib.crc32(CONTENT).to_bytes(4)).decode()
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("facts", "kind", "num_parts"),
    [
        ({"ETag": f'"{MD5}"'}, "MD5", 0),
        ({"ETag": f'"{MD5}-3"'}, "MD5", 3),
        ({"ETag": f'"{MD5}"', "ChecksumSHA256": SHA256, "ChecksumCRC32": CRC32}, "SHA256", 0),
        ({"ETag": f'"{MD5}-3"', "ChecksumSHA256": f"{SHA256}-3", "ChecksumCRC32": CRC32}, "CRC32", 0),
        ({"ETag": f'"{MD5}-3"', "ChecksumSHA256": f"{SHA256}-3"}, "SHA256", 3),
        ({"ETag": f'"{MD5}"', "ServerSideEncryption": "AES256"}, "MD5", 0),
    ],
)
def test_the_best_that_is_told_is_taken(facts: dict[str, Any], kind: str, num_parts: int) -> None:
    told = told_digest(facts, "models")
    assert told is not None
    assert (told.kind, told.num_parts) == (kind, num_parts)


@pytest.mark.parametrize(
    ("facts", "bucket"),
    [
        ({}, "models"),
        ({"ETag": '"opaque"'}, "models"),
        ({"ETag": f'"{MD5}"', "ServerSideEncryption": "aws:kms"}, "models"),
        ({"ETag": f'"{MD5}"', "SSECustomerAlgorithm": "AES256"}, "models"),
        ({"ETag": f'"{MD5}"'}, "models--use1-az4--x-s3"),
    ],
)
def test_an_etag_that_may_be_anything_says_nothing(facts: dict[str, Any], bucket: str) -> None:
    assert told_digest(facts, bucket) is None
    check = ContentCheck(None)
    check.update(CONTENT)
    assert check.problem() == ""


@given(
    content=st.binary(max_size=100), cuts=st.lists(st.integers(0, 100)), part_bytes=st.integers(1, 40), data=st.data()
)
def test_parts_are_digested_however_the_content_is_cut(
    content: bytes, cuts: list[int], part_bytes: int, data: st.DataObject
) -> None:
    parts = [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)] or [b""]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    whole = base64.b64encode(hashlib.sha256(digests).digest()).decode()
    told = told_digest({"ChecksumSHA256": f"{whole}-{len(parts)}"}, "models")
    check, changed = ContentCheck(told, part_bytes), ContentCheck(told, part_bytes)
    places = [0, *sorted(cuts), len(content)]
    for start, end in pairwise(places):
        check.update(content[start:end])
    assert check.problem() == ""
    if content:
        place = data.draw(st.integers(0, len(content) - 1))
        changed.update(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert changed.problem() == "its SHA256 is not what the storage says"


def test_what_is_there_already_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(CONTENT[:50])
    check = ContentCheck(told_digest({"ChecksumCRC32": CRC32}, "models"))
    check.update_from(tmp_path / "part")
    check.update(CONTENT[50:])
    assert check.problem() == ""
