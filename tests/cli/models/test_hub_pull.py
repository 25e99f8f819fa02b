"""`treadle models pull` from the Hugging Face hub: its package is real, the hub is a server of this machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cli.errors import CliError
from cli.main import main
from cli.models.hub_download import HubFile, wanted_files
from cli.models.pull import pull_models
from cli.models.pull_lock import only_pull
from cli.models.source import HubModel, hub_model
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path, sha256_of_directory
from tests.cli.hub import COMMIT, REPOSITORY, TOKEN, Hub, serving
from tests.cli.whole_model import write_whole

pytestmark = pytest.mark.slow

SOURCE = f"hf:{REPOSITORY}@{COMMIT}"
WEIGHTS = bytes(range(256)) * 1000
MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": WEIGHTS,
    "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}',
}
OTHERS = {
    ".gitattributes": b"*",
    "README.md": b"read me",
    "modeling.py": b"raise SystemExit('nothing of a repository is run')",
    "pytorch_model.bin": b"pickle",
    "onnx/model.safetensors": WEIGHTS,
    "consolidated.safetensors": WEIGHTS,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """With a model, and an empty folder for models."""
    large = {"model.safetensors", "consolidated.safetensors", "tiny.gguf"}
    with serving(Hub(MODEL | OTHERS | {"tiny.gguf": b"GGUF" + WEIGHTS}, large)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "5")
        monkeypatch.setenv("TREADLE_MODELS_DIR", str(tmp_path / "models"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def config(source: str = SOURCE, **fields: Any) -> ClusterConfig:
    return ClusterConfig(models=[ModelSpec(name="tiny", source=source, **fields)])


def pull(wanted: ClusterConfig) -> list[Path]:
    return pull_models(wanted, Console(file=StringIO()))


def place(wanted: ClusterConfig) -> Path:
    return model_path(wanted.models[0])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_a_model_is_made_of_comes_and_nothing_else(hub: Hub) -> None:
    path = place(config())
    assert pull(config()) == [path]
    assert content(path) == MODEL
    assert sorted(hub.asked) == sorted(MODEL)
    assert [one.name for one in path.parent.iterdir() if not one.name.startswith(".lock-")] == [path.name]
    assert pull(config()) == []


def test_one_gguf_file_comes_alone(hub: Hub) -> None:
    wanted = config(f"{SOURCE}/tiny.gguf", sha256=hashlib.sha256(b"GGUF" + WEIGHTS).hexdigest())
    assert pull(wanted) == [place(wanted)]
    assert place(wanted).read_bytes() == b"GGUF" + WEIGHTS
    assert place(wanted).name == "tiny.gguf"
    assert hub.asked == ["tiny.gguf"]


def test_an_adapter_is_fetched_with_its_model(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS}
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    adapter = AdapterSpec("legal", SOURCE)
    wanted = config(str(tmp_path / "m.gguf"), adapters=(adapter,))
    assert pull(wanted) == [model_path(adapter)]
    assert content(model_path(adapter)) == hub.files


def test_a_connection_that_breaks_off_goes_on_where_it_was(hub: Hub) -> None:
    hub.breaks_off_after = 12 << 20
    hub.files = {"model.safetensors": bytes(25 << 20)}
    assert pull(config()) == [place(config())]
    assert hub.asked == [
        "model.safetensors",
        f"model.safetensors from {10 << 20}",
        f"model.safetensors from {20 << 20}",
    ]


def test_what_came_before_a_download_failed_is_not_asked_for_again(hub: Hub) -> None:
    hub.breaks_off_after = 1000
    with pytest.raises(CliError, match=r"the hub broke off with acme/tiny: .*; pull again, and it goes on"):
        pull(config())
    assert not place(config()).exists()
    before = set(hub.asked)
    hub.breaks_off_after = None
    hub.asked.clear()
    assert pull(config()) == [place(config())]
    assert set(hub.asked) == MODEL.keys() - before | {"model.safetensors"}
    assert content(place(config())) == MODEL


def test_a_file_that_is_not_what_was_committed_is_not_kept(hub: Hub) -> None:
    hub.committed = dict(hub.files)
    hub.files["model.safetensors"] = WEIGHTS[::-1]
    with pytest.raises(CliError, match=r"model.safetensors came damaged: it is not what was committed; pull again"):
        pull(config())
    assert not place(config()).exists()
    hub.files["model.safetensors"] = WEIGHTS
    assert pull(config()) == [place(config())]


def test_a_wrong_digest_leaves_nothing(hub: Hub) -> None:
    with pytest.raises(CliError, match=f"has the wrong sha256: expected {'0' * 64}"):
        pull(config(sha256="0" * 64))
    assert [one.name for one in place(config()).parent.iterdir() if not one.name.startswith(".lock-")] == []
    pull(config())
    right = sha256_of_directory(place(config()))
    assert pull(config(sha256=right)) == []


def test_a_gated_model_wants_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.is_gated = True
    with pytest.raises(CliError, match="acme/tiny is gated: ask for access on its page, and set HF_TOKEN to a token"):
        pull(config())
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert pull(config()) == [place(config())]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (f"hf:acme/none@{COMMIT}", "the hub has no repository acme/none, or it is private: set HF_TOKEN to see it"),
        (
            f"hf:{REPOSITORY}@{'f' * 40}",
            "acme/tiny has no such commit, branch or tag; `treadle models pin hf:acme/tiny`",
        ),
        (f"{SOURCE}/other.gguf", "acme/tiny holds no file other.gguf at this commit; GGUF files there: tiny.gguf"),
    ],
)
def test_what_is_not_there_is_named(hub: Hub, source: str, error: str) -> None:
    with pytest.raises(CliError) as raised:
        pull(config(source))
    assert error in raised.value.message
    assert hub.asked == []


def test_weights_that_could_run_are_not_fetched(hub: Hub) -> None:
    del hub.files["model.safetensors"], hub.files["consolidated.safetensors"]
    with pytest.raises(CliError, match="holds no safetensors files at this commit; name one of its GGUF files"):
        pull(config())


def test_a_path_that_leaves_the_folder_is_refused(hub: Hub) -> None:
    hub.files["../evil.json"] = b"{}"
    with pytest.raises(CliError, match=r"'\.\./evil.json' is no plain path"):
        pull(config())


def test_a_hub_that_is_away_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(CliError, match="acme/tiny"):
        pull(config())


def test_a_repository_is_pinned_to_the_commit_of_its_branch(hub: Hub) -> None:
    for named in (f"hf:{REPOSITORY}", f"{REPOSITORY}@main"):
        done = CliRunner().invoke(main, ["models", "pin", named])
        assert (done.exit_code, done.output) == (0, f"{SOURCE}\n")


@pytest.mark.parametrize(
    "source", ["", "hf:", "tiny", "hf:acme/tiny@", "hf:acme/tiny@a@b", "hf:acme/tiny/more", "../a/b"]
)
def test_what_names_no_branch_of_a_repository_is_not_asked_for(hub: Hub, source: str) -> None:
    done = CliRunner().invoke(main, ["models", "pin", source])
    assert (done.exit_code, done.output) == (2, f"Error: {source!r}: expected hf:ORG/NAME or hf:ORG/NAME@BRANCH\n")
    assert hub.asked == []


def test_a_check_of_the_configuration_says_what_is_to_come(hub: Hub, tmp_path: Path) -> None:
    whole, here = write_whole(tmp_path / "here.gguf"), tmp_path / "cluster.yaml"
    legal = f"{{name: legal, source: '{SOURCE}'}}"
    here.write_text(f"models: [{{name: a, source: '{SOURCE}'}}, {{name: b, source: {whole}, adapters: [{legal}]}}]")
    done = CliRunner().invoke(main, ["config", "check", str(here)])
    assert done.exit_code == 0, done.output
    assert "  a: not fetched yet;" in done.output
    assert "  legal: not fetched yet;" in done.output
    assert hub.asked == []


def test_two_pulls_of_one_place_follow_one_another(tmp_path: Path) -> None:
    held = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print('held'); input()"
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-uc", held, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CliError, match="another pull holds"), only_pull(lock, wait_s=0.0):
            pass
        other.communicate("\n")
    with only_pull(lock, wait_s=0.0):
        pass


def test_mistral_s_second_copy_is_taken_where_it_is_the_only_one() -> None:
    def file(path: str) -> HubFile:
        return HubFile(path, 1, "", "")

    both = [file("consolidated.00.safetensors"), file("model-1.safetensors"), file("config.json")]
    model = HubModel(REPOSITORY, COMMIT)
    assert [one.path for one in wanted_files(model, both)] == ["model-1.safetensors", "config.json"]
    assert wanted_files(model, both[:1]) == both[:1]


def test_a_source_is_taken_apart() -> None:
    assert hub_model(SOURCE) == HubModel("acme/tiny", COMMIT)
    assert hub_model(f"{SOURCE}/q/tiny.gguf") == HubModel("acme/tiny", COMMIT, "q/tiny.gguf")


@pytest.mark.parametrize(
    "source",
    ["hf:acme/tiny", "hf:acme/tiny@main", f"hf:tiny@{COMMIT}", f"{SOURCE}/../x.gguf", f"{SOURCE}/x.bin", f"{SOURCE}/"],
)
def test_a_source_that_names_no_commit_or_another_file_is_refused(source: str) -> None:
    with pytest.raises(CliError):
        hub_model(source)
