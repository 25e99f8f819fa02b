"""`treadle config`, the example configuration, and how errors reach the user."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from cli.config.yaml import process_yaml
from cli.main import COMMANDS, main
from shared.config.config import ClusterConfig, load_config, parse_config
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import ScalingOptions
from shared.config.services.durability import DurabilityOptions
from shared.config.services.gateway import GatewayOptions
from shared.config.services.queue import OperationOptions, QueueOptions

EXAMPLE = Path(__file__).parents[2] / "cluster.yaml"


def test_check_reports_every_problem_at_once_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("gateway: {port: 0}\nmodels: []\nmodel: x\n")
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    first, *problems = result.stderr.splitlines()
    assert first == f"Error: {file}: 3 problems"
    assert sorted(line.split(":")[0] for line in problems) == ["  - gateway.port", "  - model", "  - models"]


def test_every_command_that_reads_a_configuration_fails_alike(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    for command in (["up"], ["down"], ["status"], ["models", "pull"], ["models", "list"], ["config", "show"]):
        result = CliRunner().invoke(main, [*command, "-f", missing])
        assert (result.exit_code, result.stderr) == (
            2,
            f"Error: {missing}: cannot be read: No such file or directory\n",
        )


def test_the_example_says_what_the_defaults_are() -> None:
    assert load_config(EXAMPLE) == ClusterConfig()
    result = CliRunner().invoke(main, ["config", "check", str(EXAMPLE)])
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"{EXAMPLE}: OK (2 models, 2 nodes)")


def test_the_example_names_every_option_of_its_sections() -> None:
    named = yaml.safe_load(EXAMPLE.read_text())

    def check(section: type[BaseModel | EngineOptions], values: dict[str, Any]) -> None:
        names = (
            set(section.model_fields)
            if issubclass(section, BaseModel)
            else {field.name for field in dataclasses.fields(section)}
        )
        assert set(values) == names

    check(ClusterConfig, named)
    check(EngineOptions, named["engine"])
    check(QueueOptions, named["queue"])
    check(OperationOptions, named["queue"]["operations"])
    check(GatewayOptions, named["gateway"])
    check(ScalingOptions, named["scaling"])
    check(DurabilityOptions, named["durability"])


def test_show_tells_what_becomes_of_late_requests_and_what_tenants_weigh(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "slo_classes: {interactive: {ttft_s: 2, late: refuse}, batch: {}}\n"
        "tenants: {acme: {weight: 2.5}}\n"
        "keys: [{key: k, tenant: unlisted}]\n"
    )
    result = CliRunner().invoke(main, ["config", "show", "-f", str(file)])
    assert result.exit_code == 0
    shown = yaml.safe_load(result.stdout)
    assert {name: spec["late"] for name, spec in shown["slo_classes"].items()} == {
        "interactive": "refuse",
        "batch": "accept",
    }
    assert shown["tenants"] == {"acme": {"weight": 2.5, "cache": "shared"}}


def test_show_masks_secrets(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("keys: [{key: s3cret, tenant: acme}]\nredis_url: redis://:hunter2@localhost/0\n")
    result = CliRunner().invoke(main, ["config", "show", "-f", str(file)])
    assert result.exit_code == 0
    assert "tenant: acme" in result.stdout
    assert "s3cret" not in result.stdout
    assert "hunter2" not in result.stdout


def test_the_copy_for_the_processes_holds_in_any_folder_and_keeps_the_keys() -> None:
    config = parse_config("models: [{name: m, source: weights/m.gguf}]\nkeys: [{key: k, tenant: t}]\n", "test")
    copy = parse_config(process_yaml(config), "copy")
    assert copy.models[0].source == str(Path.cwd() / "weights" / "m.gguf")
    assert copy.data_dir == Path.cwd() / ".treadle"
    assert copy.keys[0].key.get_secret_value() == "k"
    assert parse_config(process_yaml(copy), "copy of the copy") == copy


def test_the_copy_for_the_processes_names_adapters_by_whole_paths() -> None:
    adapters = "adapters: [{name: legal, source: adapters/legal}, {name: own, source: ~/own}]"
    config = parse_config(f"models: [{{name: m, source: m.gguf, {adapters}}}]", "test")
    (model,) = parse_config(process_yaml(config), "copy").models
    assert [adapter.source for adapter in model.adapters] == [
        str(Path.cwd() / "adapters" / "legal"),
        str(Path.home() / "own"),
    ]


def test_a_node_must_not_take_a_service_s_name(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{name: scheduler}]\n")
    result = CliRunner().invoke(main, ["status", "-f", str(file)])
    assert result.exit_code == 2
    assert "nodes.0.name: 'scheduler' is the name of a service; take another" in result.stderr


def test_help_lists_every_command_and_each_has_its_own() -> None:
    listing = CliRunner().invoke(main, ["--help"]).stdout
    for name in COMMANDS:
        assert f"\n  {name} " in listing
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
