"""What of a bucket was fetched: written beside it, to go on with a download, and to notice what changed since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cli.errors import CliError
from cli.models.buckets.bucket_objects import BucketObject, opened, pin_of
from cli.models.source import BucketModel


def record_path(path: Path) -> Path:
    """Where the record of the file or directory at ``path`` lies."""
    return path.with_name(f".source-{path.name}.json")


def write_record(path: Path, objects: Sequence[BucketObject]) -> None:
    """Write ``objects`` into the file ``path``, whole or not at all."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(json.dumps([asdict(one) for one in objects], indent=1), "utf-8")
    scratch.replace(path)


def read_record(path: Path) -> list[BucketObject]:
    """What `write_record` wrote; nothing where there is no record, or one that cannot be read."""
    try:
        return [BucketObject(**one) for one in json.loads(path.read_text("utf-8"))]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def check_unchanged(model: BucketModel, path: Path) -> None:
    """Ask the bucket of an unpinned ``model``, which was fetched to ``path``, whether it still is what came.

    `CliError` where it is not, so that no two machines serve different weights under one name.
    """
    fetched = read_record(record_path(path))
    with opened(model) as bucket:
        there = bucket.wanted()
    if changed := _differing(fetched, there):
        raise CliError(
            f"{model.address} has changed since it was fetched to {path}: {changed}. To serve what is there now, give "
            f"a model of another name the source {model.address}?etag={pin_of(model, there).etag}; to keep what was "
            f"fetched, make {path} the source; or delete {path} everywhere and pull again"
        )


def _differing(fetched: Sequence[BucketObject], there: Sequence[BucketObject]) -> str:
    """The first path that is not what it was, and how many there are; "" where all are."""
    before, after = ({one.path: (one.num_bytes, one.etag) for one in side} for side in (fetched, there))
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if not paths:
        return ""
    return f"{paths[0]} differs" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more differ"
