"""`treadle models pull` from an object storage: botocore is real, the storage is a server of this machine."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from cli.models.buckets.bucket_objects import MAX_OBJECTS
from cli.models.buckets.bucket_parts import PART_BYTES
from shared.config.engines.adapters import AdapterSpec
from shared.files.model_file import model_path, sha256_of_directory
from tests.cli.buckets import FILE, GGUF, MODEL, SOURCE, WEIGHTS, below, config, content, place, pull, refused
from tests.cli.object_store import ObjectStore
from tests.cli.whole_model import write_whole
from tests.e2e.cluster import wait_for

pytestmark = pytest.mark.slow

PART = PART_BYTES


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


def test_a_pull_that_is_killed_is_gone_on_with(store: ObjectStore, tmp_path: Path) -> None:
    store.objects["quants/tiny.gguf"] = large = os.urandom(4 * PART)
    store.holds_from = 2 * PART
    file, part = tmp_path / "cluster.yaml", place(config(FILE)).with_name(".part-tiny.gguf") / "content" / "tiny.gguf"
    file.write_text(f"models: [{{name: tiny, source: '{FILE}'}}]")
    command = [sys.executable, "-c", "from cli.main import main; main()", "models", "pull", "-f", str(file)]
    with subprocess.Popen(command, env=dict(os.environ)) as killed:
        wait_for("two parts are written", lambda: part.exists() and part.stat().st_size == 2 * PART)
        killed.kill()
    store.released.set()
    store.asked.clear()
    pull(config(FILE))
    assert place(config(FILE)).read_bytes() == large
    assert [one for one in sorted(store.asked) if not one.startswith("head")] == [
        "quants/tiny.gguf 0-0",
        f"quants/tiny.gguf {2 * PART}-{3 * PART - 1}",
        f"quants/tiny.gguf {3 * PART}-{4 * PART - 1}",
    ]


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


@pytest.mark.parametrize("field", ["ETag", "x-amz-checksum-sha256", "x-amz-checksum-crc32"])
def test_an_object_that_was_uploaded_in_parts_is_held_against_the_digest_of_their_digests(
    store: ObjectStore, field: str
) -> None:
    part_bytes = 5 << 20  # other than ours
    store.objects["quants/tiny.gguf"] = large = os.urandom(2 * PART + 1)
    parts = [large[start : start + part_bytes] for start in range(0, len(large), part_bytes)]

    def told(digest: Callable[[bytes], bytes]) -> str:
        whole = digest(b"".join(digest(part) for part in parts))
        text = whole.hex() if field == "ETag" else base64.b64encode(whole).decode()
        return f"{text}-{len(parts)}"

    right = {
        "ETag": told(lambda content: hashlib.md5(content, usedforsecurity=False).digest()),
        "x-amz-checksum-sha256": told(lambda content: hashlib.sha256(content).digest()),
        "x-amz-checksum-crc32": told(lambda content: zlib.crc32(content).to_bytes(4)),
    }
    store.headers["quants/tiny.gguf"] = {"ETag": f"opaque-{len(parts)}", field: right[field]}
    store.part_bytes["quants/tiny.gguf"] = part_bytes
    pull(config(f"{FILE}?etag={store.headers['quants/tiny.gguf']['ETag']}"))
    store.objects["quants/tiny.gguf"] = large[:-1] + bytes([large[-1] ^ 1])
    assert "came damaged: its " in refused(config(FILE))
    del store.part_bytes["quants/tiny.gguf"]
    pull(config(FILE))
    assert place(config(FILE)).exists(), "of parts that nobody knows only size and ETag can be compared"


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


@pytest.mark.parametrize(
    "path", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\evil.json", "./evil.json", "evil\n.json"]
)
def test_a_key_that_leaves_the_folder_is_refused(store: ObjectStore, path: str) -> None:
    store.objects[f"llama/tiny/{path}"] = b"{}"
    assert f"{path!r} is no plain path" in refused(config())
    assert store.asked == ["list"]
