"""Fetch a model from a bucket: its objects in parts, each checked when it is whole.

What has come stays beside the model's place until all is there, with a record of what it is a part of: a download that
broke off goes on where it was, and an object that has changed meanwhile is fetched anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich.progress import Progress

from cli.errors import CliError
from cli.models.buckets.bucket_objects import BucketObject, ModelBucket, opened
from cli.models.buckets.bucket_parts import PART_BYTES, ObjectPart, PartReader, parts_of
from cli.models.buckets.bucket_record import read_record, write_record
from cli.models.buckets.object_check import ContentCheck, told_digest
from cli.models.source import BucketModel

_CONTENT = "content"
RECORD = "record.json"
"""In the folder that is fetched into: what has been fetched, or is about to."""


def download_from_bucket(model: BucketModel, folder: Path, progress: Progress) -> Path:
    """Bring ``model`` into ``folder``, which may hold a part of it; where it lies there: a directory, or a file.

    Raises `CliError`, for objects that are not what the storage says too; a full disk is an `OSError` with ENOSPC.
    """
    content = folder / _CONTENT
    content.mkdir(exist_ok=True)
    with opened(model) as bucket:
        objects = bucket.wanted()
        there = _kept(content, read_record(folder / RECORD), objects)
        write_record(folder / RECORD, objects)
        task = progress.add_task(f"download {model.address}", total=sum(one.num_bytes for one in objects))
        progress.advance(task, sum(there.values()))
        reader = PartReader(bucket, lambda num_bytes: progress.advance(task, num_bytes))
        _fetch(bucket, objects, there, content, reader)
    return content if model.is_directory else content / objects[0].path


def _kept(content: Path, before: Sequence[BucketObject], objects: Sequence[BucketObject]) -> dict[str, int]:
    """By path, the bytes of ``objects`` that an earlier pull has left; what is of no use is deleted."""
    known, there = set(before), {}
    current = {one.path: one for one in objects if one in known}
    for file in [path for path in content.rglob("*") if path.is_file()]:
        one = current.get(str(file.relative_to(content)))
        if one is None or (num_bytes := file.stat().st_size) > one.num_bytes:
            file.unlink()
        else:
            there[one.path] = num_bytes
    return there


def _fetch(
    bucket: ModelBucket, objects: Sequence[BucketObject], there: dict[str, int], content: Path, reader: PartReader
) -> None:
    """Append to each file what is missing of it."""
    checks: dict[str, ContentCheck] = {}

    def parts() -> Iterator[ObjectPart]:
        for one in objects:
            start = there.get(one.path, 0)
            if start or one.num_bytes > PART_BYTES:  # what comes whole tells of itself
                checks[one.path] = bucket.check_of(one)
            yield from parts_of(one, start)

    with closing(reader.in_order(parts())) as contents:
        for come in contents:
            part, one = come.part, come.part.whole
            path = content / one.path
            if part.start == there.get(one.path, 0):
                path.parent.mkdir(parents=True, exist_ok=True)
                check = checks.pop(one.path, None) or ContentCheck(told_digest(come.facts, bucket.model.bucket))
                if part.start:
                    check.update_from(path)
            with path.open("ab") as file:
                file.write(come.content)
            check.update(come.content)
            if part.end == one.num_bytes and (problem := _problem(one, path, check)):
                path.unlink()
                raise CliError(f"s3://{bucket.model.bucket}/{one.key} came damaged: {problem}; pull again")


def _problem(one: BucketObject, path: Path, check: ContentCheck) -> str:
    num_bytes = path.stat().st_size
    return f"it has {num_bytes} bytes of {one.num_bytes}" if num_bytes != one.num_bytes else check.problem()
