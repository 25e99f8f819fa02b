"""`treadle models pull` from an object storage: botocore is real, the storage is a server of this machine."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cli.errors import CliError
from cli.main import main
from cli.models.bucket_objects import MAX_OBJECTS
from cli.models.bucket_parts import PART_BYTES
from cli.models.pull import pull_models
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path, sha256_of_directory
from tests.cli.object_store import ACCESS_KEY, SECRET, ObjectStore, serving
from tests.cli.whole_model import write_whole

pytestmark = pytest.mark.slow

SOURCE = "s3://models/llama/tiny/"
FILE = "s3://models/quants/tiny.gguf"
WEIGHTS = bytes(range(256)) * 1000
GGUF = b"GGUF" + WEIGHTS
MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": WEIGHTS,
    "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}',
}
OTHERS = {"": b"", "README.md": b"read me", "modeling.py": b"raise", "pytorch_model.bin": b"pickle", "onnx/": b""}
PART = PART_BYTES


def below(prefix: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}{name}": content for name, content in files.items()}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """With a directory and a file, an environment that leads to it alone, and an empty folder for models."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    objects = below("llama/tiny/", MODEL | OTHERS) | {"quants/tiny.gguf": GGUF, "llama/tiny-2/config.json": b"{}"}
    with serving(ObjectStore(objects)) as store:
        environment = {
            "AWS_ENDPOINT_URL_S3": store.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "TREADLE_MODELS_DIR": str(tmp_path / "models"),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield store


def config(source: str = SOURCE, **fields: Any) -> ClusterConfig:
    return ClusterConfig(models=[ModelSpec(name="tiny", source=source, **fields)])


def pull(wanted: ClusterConfig) -> list[Path]:
    return pull_models(wanted, Console(file=StringIO()))


def refused(wanted: ClusterConfig) -> str:
    """What a pull that must fail says; nothing of a secret, and no model at its place."""
    there = place(wanted).exists()
    with pytest.raises(CliError) as raised:
        pull(wanted)
    assert SECRET not in raised.value.message
    assert ACCESS_KEY not in raised.value.message
    assert place(wanted).exists() is there
    return raised.value.message


def place(wanted: ClusterConfig) -> Path:
    return model_path(wanted.models[0])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pinned(source: str) -> str:
    done = CliRunner().invoke(main, ["models", "pin", source])
    assert done.exit_code == 0, done.output
    return done.output.strip()


def shown(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))


# --- what comes -------------------------------------------------------------------------------------------------------


def test_what_a_model_is_made_of_comes_and_nothing_else(store: ObjectStore) -> None:
    path = place(config())
    assert path.name == "tiny"
    assert pull(config()) == [path]
    assert content(path) == MODEL
    assert sorted(store.asked) == sorted(["list", *(f"llama/tiny/{name}" for name in MODEL)])
    assert sorted(one.name for one in path.parent.iterdir()) == [".lock-tiny", ".source-tiny.json", "tiny"]
    assert store.regions == {"us-east-1"}


def test_one_gguf_file_comes_alone_in_parts(store: ObjectStore) -> None:
    store.objects["quants/tiny.gguf"] = large = b"GGUF" + os.urandom(2 * PART)
    wanted = config(FILE, sha256=hashlib.sha256(large).hexdigest())
    assert pull(wanted) == [place(wanted)]
    assert place(wanted).read_bytes() == large
    assert place(wanted).name == "tiny.gguf"
    ranges = [f"{start}-{min(start + PART, len(large)) - 1}" for start in range(0, len(large), PART)]
    asked = ["quants/tiny.gguf 0-0", "head quants/tiny.gguf", *(f"quants/tiny.gguf {one}" for one in ranges)]
    assert sorted(store.asked) == sorted(asked)


def test_a_whole_bucket_can_be_a_model(store: ObjectStore) -> None:
    store.objects = dict(MODEL)
    assert pull(config("s3://models/")) == [place(config("s3://models/"))]
    assert content(place(config("s3://models/"))) == MODEL


def test_more_objects_than_a_page_of_a_listing_holds(store: ObjectStore) -> None:
    files = {f"model-{number:05}-of-01200.safetensors": b"%d" % number for number in range(1200)}
    store.objects = below("llama/tiny/", files)
    pull(config())
    assert content(place(config())) == files
    assert store.asked.count("list") == 2


def test_too_many_objects_are_no_model(store: ObjectStore) -> None:
    store.objects = dict.fromkeys((f"llama/tiny/{number}.json" for number in range(MAX_OBJECTS + 1)), b"")
    assert f"{SOURCE} holds more than {MAX_OBJECTS} objects; name a model's own prefix" in refused(config())


def test_an_adapter_is_fetched_with_its_model(store: ObjectStore, tmp_path: Path) -> None:
    store.objects = below("legal/", {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS})
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    adapter = AdapterSpec("legal", "s3://models/legal/")
    assert pull(config(str(tmp_path / "m.gguf"), adapters=(adapter,))) == [model_path(adapter)]
    assert below("legal/", content(model_path(adapter))) == store.objects


def test_a_check_of_the_configuration_says_what_is_to_come_and_what_may_change(
    store: ObjectStore, tmp_path: Path
) -> None:
    whole, here = write_whole(tmp_path / "here.gguf"), tmp_path / "cluster.yaml"
    legal = f"{{name: legal, source: '{SOURCE}'}}"
    models = [f"a, source: '{FILE}'", f"b, source: {whole}, adapters: [{legal}]", f"c, source: '{FILE}?etag=1'"]
    here.write_text(f"models: [{', '.join(f'{{name: {model}}}' for model in models)}]")
    done = CliRunner().invoke(main, ["config", "check", str(here)])
    assert done.exit_code == 0, done.output
    assert re.findall(r"(\w+): not fetched yet", done.output) == ["a", "legal", "c"]
    assert re.findall(r"(\w+): its source is not pinned; `treadle models pin (\S+)`", done.output) == [
        ("a", FILE),
        ("legal", SOURCE),
    ]
    assert store.asked == []


# --- what breaks off --------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_off_goes_on_where_it_was(store: ObjectStore) -> None:
    store.num_cuts = 1
    wanted = config(FILE)
    pull(wanted)
    assert place(wanted).read_bytes() == GGUF
    first, again = [one.rpartition(" ")[2] for one in store.asked if one.startswith("quants/tiny.gguf")][1:]
    assert first == "quants/tiny.gguf"
    assert 0 < int(again.partition("-")[0]) < len(GGUF)


def test_what_came_before_a_download_failed_is_not_asked_for_again(store: ObjectStore) -> None:
    large = os.urandom(12 * PART)
    store.objects["quants/tiny.gguf"] = large
    store.changes = {}
    wanted = config(FILE)
    part = place(wanted).with_name(".part-tiny.gguf") / "content" / "tiny.gguf"
    store.num_cuts = 10**6
    assert "broke off 5 times" in refused(wanted)
    assert not part.exists(), "no part had come whole"
    store.num_cuts = 0
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(large[: 10 * PART + 7])
    store.asked.clear()
    pull(wanted)
    assert place(wanted).read_bytes() == large
    ranges = [f"{10 * PART + 7}-{11 * PART + 6}", f"{11 * PART + 7}-{12 * PART - 1}"]
    asked = ["quants/tiny.gguf 0-0", "head quants/tiny.gguf", *(f"quants/tiny.gguf {one}" for one in ranges)]
    assert sorted(store.asked) == sorted(asked)


def test_what_came_of_an_object_that_has_changed_since_is_fetched_anew(store: ObjectStore) -> None:
    store.changes, store.change_when = {"llama/tiny/model.safetensors": WEIGHTS[::-1]}, "listed"
    assert "it changed while it was fetched; pull again" in refused(config())
    store.changes = {}
    store.asked.clear()
    pull(config())
    assert content(place(config())) == MODEL | {"model.safetensors": WEIGHTS[::-1]}


def test_objects_that_are_gone_since_are_not_kept(store: ObjectStore) -> None:
    store.headers["llama/tiny/model.safetensors"] = {"ETag": "0" * 32}
    assert "model.safetensors came damaged: its MD5 is not what the storage says" in refused(config())
    del store.headers["llama/tiny/model.safetensors"], store.objects["llama/tiny/1_Pooling/config.json"]
    pull(config())
    assert "1_Pooling/config.json" not in content(place(config()))


@pytest.mark.parametrize("ignores_match", [False, True])
def test_an_object_that_changes_in_the_middle_of_a_download(store: ObjectStore, ignores_match: bool) -> None:
    store.objects["quants/tiny.gguf"] = bytes(12 * PART)
    store.changes = {"quants/tiny.gguf": b"\1" * (12 * PART)}
    store.ignores_match = ignores_match
    assert "changed while it was fetched" in refused(config(FILE))
    store.changes = {}
    pull(config(FILE))
    assert place(config(FILE)).read_bytes() == b"\1" * (12 * PART)


def test_a_full_disk_is_told_and_the_rest_comes_when_there_is_room(store: ObjectStore) -> None:
    """A device that is always full stands in the place of the weights."""
    weights = place(config()).with_name(".part-tiny") / "content" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.symlink_to("/dev/full")
    said = refused(config())
    assert re.search(r"model 'tiny': the disk of .* is full; what has come is kept", said)
    weights.unlink()
    pull(config())
    assert content(place(config())) == MODEL


# --- whether it is what the storage has -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"ETag": "0" * 32}, "its MD5 is not"),
        ({"ETag": "0" * 32, "x-amz-server-side-encryption": "aws:kms"}, None),
        ({"ETag": f"{'0' * 32}-2"}, None),
        ({"ETag": "0" * 32, "x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(GGUF).digest()).decode()}, None),
        ({"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(GGUF).to_bytes(4)).decode()}, None),
        ({"x-amz-checksum-crc32": base64.b64encode(bytes(4)).decode()}, "its checksum is another"),
        ({"x-amz-checksum-crc32": f"{base64.b64encode(bytes(4)).decode()}-3"}, None),
    ],
)
def test_an_object_is_held_against_what_is_said_of_it(
    store: ObjectStore, headers: dict[str, str], problem: str | None
) -> None:
    store.headers["quants/tiny.gguf"] = headers
    if problem is None:
        pull(config(FILE))
        assert place(config(FILE)).read_bytes() == GGUF
    else:
        assert problem in refused(config(FILE))


def test_a_large_object_is_held_against_its_checksum_too(store: ObjectStore) -> None:
    store.objects["quants/tiny.gguf"] = large = bytes(PART + 1)
    right = base64.b64encode(hashlib.sha1(large, usedforsecurity=False).digest()).decode()
    store.headers["quants/tiny.gguf"] = {"ETag": "a-2", "x-amz-checksum-sha1": "A" * 27 + "="}
    assert "came damaged: its SHA1 is not what the storage says; pull again" in refused(config(FILE))
    store.headers["quants/tiny.gguf"] = {"ETag": "a-2", "x-amz-checksum-sha1": right}
    pull(config(FILE))
    assert place(config(FILE)).read_bytes() == large


def test_an_object_of_another_size_than_was_listed(store: ObjectStore) -> None:
    store.headers["llama/tiny/config.json"] = {"listed-size": "3"}
    assert "changed while it was fetched" in refused(config())


def test_a_wrong_digest_leaves_nothing(store: ObjectStore) -> None:
    wanted = config(sha256="0" * 64)
    assert f"has the wrong sha256: expected {'0' * 64}" in refused(wanted)
    assert sorted(one.name for one in place(wanted).parent.iterdir()) == [".lock-tiny"]
    pull(config())
    right = config(sha256=sha256_of_directory(place(config())))
    store.objects.clear()
    assert pull(right) == [], "what has a digest is asked for nowhere"


@pytest.mark.parametrize("path", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\evil.json", "./evil.json"])
def test_a_key_that_leaves_the_folder_is_refused(store: ObjectStore, path: str) -> None:
    store.objects[f"llama/tiny/{path}"] = b"{}"
    assert f"{path!r} is no plain path" in refused(config())
    assert store.asked == ["list"]


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
