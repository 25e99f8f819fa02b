"""Models in an object storage that has changed, refuses, or is away: what `treadle models pull` says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.buckets import FILE, GGUF, MODEL, SOURCE, WEIGHTS, config, content, pinned, place, pull, refused
from tests.cli.object_store import ACCESS_KEY, SECRET, ObjectStore

pytestmark = pytest.mark.slow


# --- whether it stays what it was -------------------------------------------------------------------------------------


def test_a_directory_is_pinned_to_what_it_holds(store: ObjectStore) -> None:
    source = pinned(SOURCE)
    assert re.fullmatch(re.escape(SOURCE) + r"\?etag=[0-9a-f]{64}", source)
    store.objects["llama/tiny/README.md"] = b"of no account"
    assert pinned(source) == source
    pull(config(source))
    store.objects.clear()
    assert pull(config(source)) == []


def test_what_is_not_what_was_pinned_is_not_fetched(store: ObjectStore) -> None:
    for source, key in ((SOURCE, "llama/tiny/config.json"), (FILE, "quants/tiny.gguf")):
        wanted = config(pinned(source))
        store.objects[key] += b" "
        assert re.search("is not what was pinned: its etag is [0-9a-f]+, expected [0-9a-f]+;", refused(wanted))
        assert pinned(source) != wanted.models[0].source


def test_a_file_is_pinned_to_its_version_where_the_bucket_keeps_them(store: ObjectStore) -> None:
    store.versions["quants/tiny.gguf"] = {"v1": GGUF}
    source = pinned(FILE)
    assert source == f"{FILE}?versionId=v1"
    store.versions["quants/tiny.gguf"]["v2"] = GGUF[::-1]
    pull(config(source))
    assert place(config(source)).read_bytes() == GGUF
    assert place(config(source)).name == "tiny.gguf"
    assert "there is no such version" in refused(config(f"{FILE}?versionId=v3"))


def test_what_is_not_pinned_is_held_against_the_bucket_at_each_pull(store: ObjectStore) -> None:
    pull(config())
    assert pull(config()) == []
    store.objects["llama/tiny/README.md"] = b"of no account"
    assert pull(config()) == []
    store.objects["llama/tiny/model.safetensors"] = WEIGHTS[::-1]
    said = refused(config())
    assert "has changed since it was fetched to" in said
    assert ": model.safetensors differs." in said
    assert f"the source {pinned(SOURCE)}; to keep" in said
    del store.objects["llama/tiny/config.json"]
    assert ": config.json and 1 more differ." in refused(config())


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("s3://other/tiny/", "s3://other/tiny/: there is no such bucket: look at its name, AWS_ENDPOINT_URL_S3"),
        ("s3://other/tiny.gguf", "s3://other/tiny.gguf: there is no such bucket: look at its name"),
        ("s3://models/none.gguf", "s3://models/none.gguf: there is no such object: look at its key"),
        ("s3://models/none/", "holds no safetensors files: there is nothing below this prefix"),
        ("s3://models/llama/tiny-2/", "holds no safetensors files: none of its 1 objects is one"),
    ],
)
def test_what_is_not_there_is_named(store: ObjectStore, source: str, error: str) -> None:
    assert error in refused(config(source))


def test_an_empty_file_is_no_model(store: ObjectStore) -> None:
    store.objects["quants/tiny.gguf"] = b""
    assert "it is empty" in refused(config(FILE))


@pytest.mark.parametrize("source", [SOURCE, FILE])
def test_credentials_that_do_not_do_are_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    store.is_denied = True
    assert "access is denied: its credentials need s3:ListBucket for the bucket, s3:GetObject" in refused(
        config(source)
    )
    store.is_expired = True
    assert "the credentials have expired: renew them" in refused(config(source))
    store.access_keys.clear()
    assert "the storage does not know this access key: look at AWS_ACCESS_KEY_ID" in refused(config(source))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "there are no credentials: set AWS_ACCESS_KEY_ID" in refused(config(source))


def test_a_storage_that_is_away_is_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert "its storage cannot be reached (EndpointConnectionError): look at AWS_ENDPOINT_URL_S3" in refused(config())
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{ACCESS_KEY}:{SECRET}@nowhere:99999999")
    assert "`http://nowhere:99999999` was not a valid URI" in refused(config())
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", SECRET)
    assert "the endpoint is no address" in refused(config())


def test_profiles_name_keys_endpoint_and_region(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(f"[profile ours]\nregion = eu-central-1\nendpoint_url = {store.url}\n")
    (tmp_path / "credentials").write_text(f"[ours]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET}\n")
    monkeypatch.setenv("AWS_PROFILE", "ours")
    pull(config())
    assert store.regions == {"eu-central-1"}
    monkeypatch.setenv("AWS_PROFILE", "theirs")
    assert "The config profile (theirs) could not be found; look at AWS_PROFILE" in refused(config(FILE))


def test_a_service_account_s_token_is_given_for_a_role(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/models")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", store.url)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    pull(config())
    assert content(place(config())) == MODEL
    assert (store.tokens, store.regions) == (["of-the-pod"], {"eu-west-1"})


def test_what_answers_as_no_storage_does_is_told(store: ObjectStore) -> None:
    wrong = "its storage does not answer as S3 does"
    store.headers["llama/tiny/config.json"] = {"x-amz-checksum-sha256": "abc"}  # no digest
    assert wrong in refused(config())
    store.is_sizeless = True
    assert wrong in refused(config())
    assert "its storage sends no parts of objects" in refused(config(FILE))
    store.sends_away = True
    assert wrong in refused(config())
