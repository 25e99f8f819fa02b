"""Sources in an object storage: which are taken, what is wrong with others, and where they are put."""

from __future__ import annotations

import pytest

from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import (
    BucketModel,
    adapter_source_problem,
    bucket_model,
    may_change,
    source_problem,
)
from shared.files.model_file import model_path

DIGEST = "0123456789abcdef" * 4
SECRET = "secret-of-an-address"


@pytest.mark.parametrize(
    ("source", "model", "is_directory"),
    [
        ("s3://models/llama/8b/", BucketModel("models", "llama/8b/"), True),
        ("s3://models/", BucketModel("models", ""), True),
        ("s3://my.models-2/a b/ä.gguf", BucketModel("my.models-2", "a b/ä.gguf"), False),
        (f"s3://models/llama/8b/?etag={DIGEST}", BucketModel("models", "llama/8b/", etag=DIGEST), True),
        ("s3://models/q.gguf?etag=0a1b-17", BucketModel("models", "q.gguf", etag="0a1b-17"), False),
        ("s3://models/q.gguf?versionId=3/L4kq+j=_.", BucketModel("models", "q.gguf", version="3/L4kq+j=_."), False),
    ],
)
def test_a_source_is_taken_apart(source: str, model: BucketModel, is_directory: bool) -> None:
    assert source_problem(source) == ""
    assert bucket_model(source) == model
    assert model.is_directory is is_directory
    assert source.startswith(model.address)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("s3://models", "expected s3://BUCKET/PREFIX/ (a directory) or s3://BUCKET/KEY.gguf"),
        ("s3:models/8b/", "expected s3://BUCKET/PREFIX/"),
        (f"s3://AKID:{SECRET}@models/8b/", "credentials and endpoint come from the environment of AWS's tools"),
        (f"s3://models/q.gguf?X-Amz-Signature={SECRET}", "expected s3://BUCKET/PREFIX/"),
        (f"s3://models/q.gguf?etag={SECRET}&x=1", "expected s3://BUCKET/PREFIX/"),
        ("s3://models/q.gguf?etag=", "expected s3://BUCKET/PREFIX/"),
        ("s3://models/8b", "the prefix of a directory ends with /, a file's key with .gguf"),
        ("s3://models/../8b/", "the key is no plain path"),
        ("s3://models//8b/", "the key is no plain path"),
        ("s3://models/8b//", "the key is no plain path"),
        ("s3://models/./q.gguf", "the key is no plain path"),
        ("s3://models/8b/?versionId=1", "versionId is of one file"),
        ("s3://models/8b/?etag=0a1b", "a directory's etag has 64 hexadecimal digits"),
    ],
)
def test_what_is_no_source_is_told_without_what_may_be_secret(source: str, problem: str) -> None:
    assert problem in source_problem(source)
    assert SECRET not in source_problem(source)
    assert problem in adapter_source_problem(source)
    assert model_path(ModelSpec(name="m", source=source)).name not in ("", "..")


def test_an_adapter_is_a_directory() -> None:
    assert adapter_source_problem("s3://models/legal/") == ""
    assert "an adapter is a directory; name s3://BUCKET/PREFIX/" in adapter_source_problem("s3://models/legal.gguf")


def test_what_is_pinned_stays_what_it_is() -> None:
    assert may_change("s3://models/8b/", None)
    assert not may_change("s3://models/8b/", DIGEST)
    assert not may_change(f"s3://models/8b/?etag={DIGEST}", None)
    assert not may_change("s3://models/q.gguf?versionId=1", None)
    assert not may_change("~/models/8b", None)


def test_each_pin_has_a_place_of_its_own() -> None:
    sources = [
        "s3://models/8b/",
        f"s3://models/8b/?etag={DIGEST}",
        "s3://models/8b/?etag=" + "f" * 64,
        "s3://other/8b/",
    ]
    places = [model_path(ModelSpec(name="m", source=source)) for source in sources]
    assert {place.name for place in places} == {"8b"}
    assert len({place.parent for place in places}) == len(sources)
    assert model_path(ModelSpec(name="m", source="s3://models/q.gguf?etag=a/b")).name == "q.gguf"
    assert model_path(ModelSpec(name="m", source="s3://models/")).name == "models"
