"""Objects of a bucket that a model is made of: listed, named by what they are now, and read.

The protocol is botocore's part: endpoint, region and credentials are those of the environment and files of AWS's tools,
and none are ours. Nothing here logs or repeats them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cli.errors import CliError
from cli.models.buckets.bucket_errors import telling
from cli.models.buckets.object_check import ContentCheck, told_digest
from cli.models.source import BucketModel
from cli.models.wanted_files import model_files
from shared.config.engines.model_source import ModelSourceError, is_plain_path
from shared.config.engines.model_source import bucket_model as checked_model

MAX_OBJECTS = 10_000
"""Below a prefix, others than the model's among them; the largest models have some two hundred files."""
MAX_CONNECTIONS = 8
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
"""In which a storage says something at all."""
_UNKNOWN_PARTS = ("400", "405", "416", "501", "InvalidArgument", "InvalidPartNumber", "NotImplemented")
_UNVERSIONED = ("", "null")


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object as the storage has it now."""

    path: str
    """Of the file that it becomes, relative to the model's directory; of a single file its name."""
    key: str
    num_bytes: int
    etag: str
    """Another content has another one."""
    version: str = ""
    """Of a single file in a bucket that keeps versions."""


class ModelBucket:
    """The bucket of a model, as its credentials see it. Raises what botocore raises: use it inside `opened`."""

    def __init__(self, client: Any, model: BucketModel) -> None:
        self.model = model
        self._client = client

    def wanted(self) -> list[BucketObject]:
        """What is fetched, by path. `CliError` where that is nothing, or not what was pinned."""
        model = self.model
        objects = self._directory() if model.is_directory else [self._file()]
        found = pin_of(model, objects)
        if model.etag and found.etag != model.etag:
            raise CliError(
                f"{model.address} is not what was pinned: its etag is {found.etag}, expected {model.etag}; "
                "put back what it was, or give what it is now a name of its own (`treadle models pin` tells its source)"
            )
        return objects

    def check_of(self, one: BucketObject) -> ContentCheck:
        """What the storage says of a whole object, to hold its content against it."""
        facts = self._client.head_object(ChecksumMode="ENABLED", **self._named(one))
        told = told_digest(facts, self.model.bucket)
        return ContentCheck(told, self._part_bytes(one, told.num_parts) if told and told.num_parts else 0)

    def _part_bytes(self, one: BucketObject, num_parts: int) -> int:
        """Of the parts that it was uploaded in, all but the last of which are alike; 0 where that is not known."""
        first, last = (self._part(one, number) for number in (1, num_parts))
        num_bytes = int(first.get("ContentLength", 0))
        is_known = first.get("PartsCount") == num_parts
        is_alike = num_bytes * (num_parts - 1) + int(last.get("ContentLength", 0)) == one.num_bytes
        return num_bytes if is_known and is_alike else 0

    def _part(self, one: BucketObject, number: int) -> Mapping[str, Any]:
        """What is told of a part; nothing by a storage that does not know how an object was uploaded."""
        from botocore.exceptions import ClientError

        try:
            named = self._named(one)
            del named["IfMatch"]  # some would compare it with the part's own
            answer: Mapping[str, Any] = self._client.head_object(PartNumber=number, **named)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _UNKNOWN_PARTS:
                raise
            return {}
        return answer

    def open(self, one: BucketObject, start: int, end: int) -> Mapping[str, Any]:
        """The answer for bytes from ``start`` to before ``end``, of this very content; its `Body` is to be closed."""
        part = {} if (start, end) == (0, one.num_bytes) else {"Range": f"bytes={start}-{end - 1}"}
        whole = {} if part else {"ChecksumMode": "ENABLED"}
        answer: Mapping[str, Any] = self._client.get_object(**self._named(one), **part, **whole)
        if unquoted(answer) != one.etag or answer.get("ContentLength") != end - start:
            answer["Body"].close()
            raise CliError(
                f"s3://{self.model.bucket}/{one.key} changed while it was fetched, or its storage sends no parts of "
                "objects; pull again"
            )
        return answer

    def _named(self, one: BucketObject) -> dict[str, str]:
        named = {"Bucket": self.model.bucket, "Key": one.key, "IfMatch": f'"{one.etag}"'}
        # to name a version takes a right of its own; who did not pin one does without
        return named | ({"VersionId": self.model.version} if self.model.version else {})

    def _file(self) -> BucketObject:
        """By a read of its first byte: other than to HEAD, a storage answers in words where it refuses."""
        model = self.model
        version = {"VersionId": model.version} if model.version else {}
        answer = self._client.get_object(Bucket=model.bucket, Key=model.key, Range="bytes=0-0", **version)
        answer["Body"].close()
        num_bytes = answer.get("ContentRange", "").rpartition("/")[2]
        if not num_bytes.isdecimal():
            raise CliError(f"{model.address}: its storage sends no parts of objects, or tells no size")
        name = model.key.rpartition("/")[2]
        told = answer.get("VersionId", "")
        return BucketObject(name, model.key, int(num_bytes), unquoted(answer), "" if told in _UNVERSIONED else told)

    def _directory(self) -> list[BucketObject]:
        model = self.model
        found = {one.path: one for one in self._listed()}
        wanted = [found[path] for path in model_files(sorted(found))]
        if not wanted:
            there = f"none of its {len(found)} objects is one" if found else "there is nothing below this prefix"
            raise CliError(
                f"{model.address} holds no safetensors files: {there}; name the prefix of a directory in Hugging Face "
                "layout, or a .gguf file (weights as pickles are never fetched)"
            )
        return wanted

    def _listed(self) -> Iterator[BucketObject]:
        model = self.model
        num_seen = 0
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=model.bucket, Prefix=model.key):
            for told in page.get("Contents", ()):
                num_seen += 1
                if num_seen > MAX_OBJECTS:
                    raise CliError(f"{model.address} holds more than {MAX_OBJECTS} objects; name a model's own prefix")
                path = told["Key"].removeprefix(model.key)
                if not path or path.endswith("/"):
                    continue  # what consoles make to show a folder
                if not (is_plain_path(path) and path.isprintable()):
                    raise CliError(f"{model.address}: {path!r} is no plain path")
                yield BucketObject(path, told["Key"], told["Size"], unquoted(told))


def unquoted(answer: Mapping[str, Any]) -> str:
    """Its ETag, without the quotes that are written around it."""
    return str(answer.get("ETag", "")).strip('"')


def pin_of(model: BucketModel, objects: Sequence[BucketObject]) -> BucketModel:
    """``model``, pinned to ``objects``: of a directory all names, sizes and ETags have a digest."""
    if not model.is_directory:
        return replace(model, etag=objects[0].etag, version="")
    digest = hashlib.sha256()
    for one in sorted(objects, key=lambda one: one.path):
        digest.update(f"{one.etag} {one.num_bytes} {one.path}\n".encode())
    return replace(model, etag=digest.hexdigest(), version="")


def pinned_source(model: BucketModel) -> str:
    """The source of what lies there now. Raises `CliError`."""
    unpinned = replace(model, etag="", version="")
    with opened(unpinned) as bucket:
        objects = bucket.wanted()
    version = "" if model.is_directory else objects[0].version
    pin = f"versionId={version}" if version else f"etag={pin_of(unpinned, objects).etag}"
    source = f"{unpinned.address}?{pin}"
    try:
        checked_model(source)
    except ModelSourceError as error:
        raise CliError(
            f"{unpinned.address}: its storage names it by {pin}, which no source can say; set sha256"
        ) from error
    return source


@contextmanager
def opened(model: BucketModel) -> Iterator[ModelBucket]:
    """The bucket of ``model``; what goes wrong inside of the block is a `CliError` that says what to do."""
    with telling(model):
        from botocore.config import Config
        from botocore.session import Session

        settings = Config(
            connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S, max_pool_connections=MAX_CONNECTIONS
        )
        # botocore itself reads AWS_DEFAULT_REGION; the other name is that of AWS's newer tools
        region = os.environ.get("AWS_REGION") or None
        try:
            session = Session()
            session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
            client = session.create_client("s3", region_name=region, config=settings)
        except ValueError as error:  # of which the text repeats the address, with what may stand in it
            raise CliError(f"{model.address}: the endpoint is no address: look at AWS_ENDPOINT_URL_S3") from error
        with closing(client):
            yield ModelBucket(client, model)


@cache
def _descriptions(data_path: str | None) -> Any:
    """What botocore knows of services: read once, since that takes far longer than to ask for a model's objects."""
    from botocore.loaders import create_loader

    return create_loader(data_path)
