"""Models that come to the configuration's file, leave it, and change in it, while a gateway serves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from gateway.models.models import ServedModel, load_models, read_models
from gateway.workers.model_watch import ModelMetrics, ServedModelWatch
from gateway.workers.served_models import ServedModels
from shared.config.config import ClusterConfig, load_config
from shared.config.reading.file_watch import FileWatch


class Watched:
    """A file, what is served of it, and who watches."""

    def __init__(self, path: Path, models: list[dict[str, Any]]) -> None:
        self.path = path
        self.write(*models)
        config = load_config(path)
        self.served = ServedModels(load_models(config))
        self.registry = CollectorRegistry()
        self.read: list[str] = []
        self.unthinkable = ""
        """The model whose files have the reader fail in a way of its own."""
        self.meanwhile = ""
        """What the file says once it has been read."""

        def read(specs: Any) -> dict[str, ServedModel]:
            self.read += [spec.name for spec in specs]
            assert not [1 for spec in specs if spec.name == self.unthinkable and 1 / 0]
            return read_models(config, specs)

        self.watch = ServedModelWatch(
            FileWatch(path), self.configured, config.models, self.served, read, ModelMetrics(self.registry)
        )

    def configured(self) -> ClusterConfig:
        config = load_config(self.path)
        if self.meanwhile:
            self.path.write_text(self.meanwhile)
        return config

    def write(self, *models: dict[str, Any]) -> None:
        self.path.write_text(yaml.safe_dump({"models": list(models)}))

    async def look(self) -> None:
        """Until what stands there now has stood still."""
        for _ in range(2):
            await self.watch.look()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def tiny(tiny_file: Path) -> dict[str, Any]:
    return {"name": "tiny", "source": str(tiny_file), "max_model_len": 64}


@pytest.fixture
def base(base_file: Path) -> dict[str, Any]:
    return {"name": "base", "source": str(base_file), "max_model_len": 64}


@pytest.fixture
async def watched(tmp_path: Path, tiny: dict[str, Any]) -> Watched:
    """Since a while: its file has stood still."""
    watched = Watched(tmp_path / "cluster.yaml", [tiny])
    await watched.look()
    return watched


async def test_a_model_that_comes_is_read_once_and_served(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any]
) -> None:
    served = watched.served["tiny"]
    watched.write(tiny, base | {"aliases": ["plain"]})
    await watched.watch.look()
    assert list(watched.served) == ["tiny"], "it may be half written"
    for _ in range(3):
        await watched.watch.look()
    assert list(watched.served) == ["tiny", "base", "plain"]
    assert watched.served["tiny"] is served
    assert (watched.read, watched.served.problem) == (["base"], "")
    assert watched.metric("treadle_model_reloads_total", outcome="ok") == 1


async def test_a_model_that_leaves_is_unknown_and_may_come_back_as_what_it_was(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any], base_file: Path
) -> None:
    watched.write(base)
    await watched.look()
    assert list(watched.served) == ["base"]
    watched.write(tiny | {"source": str(base_file)}, base)
    await watched.look()
    assert list(watched.served) == ["base"], "a node that begins now has other weights under that name"
    assert watched.served.problem.startswith("model 'tiny': its source changed; restart nodes and gateways")
    assert watched.served.withheld == {"tiny": watched.served.problem}
    watched.write(tiny, base)
    await watched.look()
    assert (list(watched.served), watched.served.problem, watched.served.withheld) == (["tiny", "base"], "", {})


async def test_a_name_that_is_to_be_served_otherwise_stays_what_it_was(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any]
) -> None:
    served = watched.served["tiny"]
    watched.write(tiny | {"max_model_len": 32, "reasoning": "none", "aliases": ["small"]}, base)
    await watched.look()
    assert list(watched.served) == ["tiny", "small", "base"], "the rest is taken over, aliases too"
    assert watched.served["tiny"] is watched.served["small"] is served
    assert watched.served.problem == (
        "model 'tiny': its max_model_len, reasoning changed; restart nodes and gateways, or give it another name"
    )
    assert watched.metric("treadle_models_stale") == 1
    watched.write(tiny)
    await watched.look()
    assert (list(watched.served), watched.served.problem) == (["tiny"], "")
    assert watched.metric("treadle_models_stale") == 0


async def test_a_name_that_stands_for_other_weights_is_served_by_none_of_its_names(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any]
) -> None:
    watched.write(tiny | {"weights": "int8", "aliases": ["small"]}, base | {"aliases": ["other"]})
    await watched.look()
    assert list(watched.served) == ["base", "other"]
    assert list(watched.served.withheld) == ["tiny", "small"]
    watched.write(tiny | {"aliases": ["small"]}, base)
    await watched.look()
    assert (list(watched.served), watched.served.withheld) == (["tiny", "small", "base"], {})


async def test_an_alias_moves_without_a_restart(watched: Watched, tiny: dict[str, Any], base: dict[str, Any]) -> None:
    watched.write(tiny | {"aliases": ["default"]}, base)
    await watched.look()
    assert watched.served["default"].name == "tiny"
    watched.write(tiny, base | {"aliases": ["default"]})
    await watched.look()
    assert watched.served["default"].name == "base"
    assert watched.read == ["base"]


async def test_what_cannot_be_read_is_told_and_tried_again_while_the_rest_is_served(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any], tmp_path: Path, base_file: Path
) -> None:
    later = tmp_path / "later.gguf"
    watched.write(tiny, base | {"source": str(later)}, base | {"name": "other"})
    await watched.look()
    assert list(watched.served) == ["tiny", "other"]
    assert str(later) in watched.served.problem
    shutil.copy(base_file, later)
    await watched.watch.look()
    assert (list(watched.served), watched.served.problem) == (["tiny", "base", "other"], "")


async def test_a_model_that_may_not_be_read_ends_no_gateway(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any], tmp_path: Path
) -> None:
    watched.write(tiny, base | {"source": str(tmp_path / ("a" * 300))}, base | {"name": "other"})
    await watched.look()
    assert list(watched.served) == ["tiny", "other"]
    assert watched.served.problem.endswith("cannot be read: File name too long")


async def test_nor_does_one_whose_files_nobody_has_thought_of(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any]
) -> None:
    watched.unthinkable = "base"
    watched.write(tiny, base, base | {"name": "other"})
    await watched.look()
    assert list(watched.served) == ["tiny", "other"]
    assert watched.served.problem == "model 'base' cannot be read: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: [", "not valid YAML"),
        ("models: []", "models"),
        ("models: [{name: a, source: a.gguf}, {name: a, source: b.gguf}]", "'a'"),
        (None, "cannot be read"),
    ],
)
async def test_a_broken_file_changes_nothing(watched: Watched, text: str | None, problem: str) -> None:
    if text is None:
        watched.path.unlink()
    else:
        watched.path.write_text(text)
    for _ in range(2):
        await watched.look()
    assert list(watched.served) == ["tiny"]
    assert problem in watched.served.problem
    assert watched.metric("treadle_model_reloads_total", outcome="failed") == 1


async def test_what_was_read_of_a_file_that_changed_meanwhile_is_not_used(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any]
) -> None:
    watched.write(tiny, base)
    watched.meanwhile = "models: ["
    await watched.look()
    assert list(watched.served) == ["tiny"]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Adapters by name: gateways read nothing of them but whether they are there."""
    for name in ("legal", "rhymes"):
        (tmp_path / name).mkdir()
    return {name: {"name": name, "source": str(tmp_path / name)} for name in ("legal", "rhymes")}


async def test_adapters_come_and_go_with_their_model_in_place(
    watched: Watched, tiny: dict[str, Any], folders: dict[str, dict[str, Any]]
) -> None:
    base = watched.served["tiny"]
    watched.write(tiny | {"adapters": [folders["legal"]]})
    await watched.look()
    assert list(watched.served) == ["tiny", "legal"]
    legal = watched.served["legal"]
    assert (legal.model, legal.adapter, legal.base) == ("tiny", "legal", base)
    watched.write(tiny | {"adapters": [folders["rhymes"], folders["legal"]], "aliases": ["default"]})
    await watched.look()
    assert list(watched.served) == ["tiny", "default", "rhymes", "legal"]
    watched.write(tiny | {"adapters": [folders["rhymes"]]})
    await watched.look()
    assert list(watched.served) == ["tiny", "rhymes"]
    assert watched.served["tiny"] is base
    assert (watched.read, watched.served.problem) == ([], ""), "the model is not read again"
    assert watched.metric("treadle_model_reloads_total", outcome="ok") == 3


@pytest.mark.parametrize("is_away", [False, True])
async def test_an_adapter_s_name_stays_what_it_was(
    watched: Watched, tiny: dict[str, Any], folders: dict[str, dict[str, Any]], *, is_away: bool
) -> None:
    watched.write(tiny | {"adapters": [folders["legal"]]})
    await watched.look()
    if is_away:
        watched.write(tiny)
        await watched.look()
    changed = folders["legal"] | {"source": folders["rhymes"]["source"]}
    watched.write(tiny | {"adapters": [changed, folders["rhymes"]]})
    await watched.look()
    assert list(watched.served) == ["tiny", "rhymes"]
    assert watched.served.problem == (
        "adapter 'legal' of model 'tiny': its source changed; restart nodes and gateways, or give it another name"
    )
    assert watched.served.withheld == {"legal": watched.served.problem}
    assert watched.metric("treadle_models_stale") == 1
    watched.write(tiny | {"adapters": [folders["legal"], folders["rhymes"]]})
    await watched.look()
    assert (list(watched.served), watched.served.problem) == (["tiny", "legal", "rhymes"], "")
    assert watched.served.withheld == {}


async def test_an_adapter_that_is_not_there_keeps_nobody_else_away(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any], folders: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    later = {"name": "later", "source": str(tmp_path / "later")}
    watched.write(tiny | {"adapters": [later, folders["legal"]]}, base | {"adapters": [folders["rhymes"]]})
    await watched.look()
    assert list(watched.served) == ["tiny", "legal", "base", "rhymes"]
    assert str(tmp_path / "later") in watched.served.problem
    assert watched.metric("treadle_models_stale") == 1
    (tmp_path / "later").mkdir()
    await watched.watch.look()
    assert (list(watched.served), watched.served.problem) == (["tiny", "later", "legal", "base", "rhymes"], "")


async def test_nor_does_one_in_the_home_of_a_user_that_is_not_there(
    watched: Watched, tiny: dict[str, Any], folders: dict[str, dict[str, Any]]
) -> None:
    lost = {"name": "lost", "source": "~no-such-user/adapter"}
    watched.write(tiny | {"adapters": [folders["legal"], lost]})
    await watched.look()
    assert list(watched.served) == ["tiny", "legal"]
    assert "adapter 'lost': ~no-such-user/adapter does not exist" in watched.served.problem


async def test_the_name_of_an_adapter_that_has_gone_may_be_a_model_s(
    watched: Watched, tiny: dict[str, Any], base: dict[str, Any], folders: dict[str, dict[str, Any]]
) -> None:
    watched.write(tiny | {"adapters": [folders["legal"]]})
    await watched.look()
    watched.write(tiny | {"weights": "int8"}, base | {"name": "legal"})
    await watched.look()
    assert (list(watched.served), list(watched.served.withheld)) == (["legal"], ["tiny"])
    assert watched.served["legal"].model == "legal"


async def test_what_was_read_at_the_start_of_a_half_written_file_is_not_held_to(
    tmp_path: Path, tiny: dict[str, Any], base: dict[str, Any], folders: dict[str, dict[str, Any]]
) -> None:
    legal, rhymes = folders["legal"], folders["rhymes"]
    half = Watched(tmp_path / "cluster.yaml", [tiny | {"adapters": [legal | {"source": rhymes["source"]}]}, base])
    first = dict(half.served)
    half.write(tiny | {"max_model_len": 32, "adapters": [legal]}, base)
    await half.look()
    assert (list(half.served), half.served.problem, half.read) == (["tiny", "legal", "base"], "", ["tiny"])
    assert half.served["tiny"].max_model_len == 32
    assert half.served["legal"].weights != first["legal"].weights
    half.write(tiny, base)
    await half.look()
    assert half.served.problem.startswith("model 'tiny': its max_model_len changed"), "this one was whole"
