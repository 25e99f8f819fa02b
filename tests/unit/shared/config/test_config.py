"""The cluster's one file: every problem at once, at its place, and no secret in any text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from cli.cluster.processes.process_plan import process_plan
from shared.config.addresses import batches_url, gateway_of_batches
from shared.config.config import (
    CONFIG_ENV,
    KEYS_ENV,
    OTLP_ENV,
    REDIS_ENV,
    ClusterConfig,
    ConfigError,
    load_config,
    parse_config,
)
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import MODELS_ENV, model_path
from shared.messages.requests.slo import Slo

SECRET = "sk-very-secret"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CONFIG_ENV, REDIS_ENV, KEYS_ENV, MODELS_ENV, OTLP_ENV):
        monkeypatch.delenv(name, raising=False)


def problems(text: str) -> list[str]:
    """The lines of the refusal, below its first."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "cluster.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == f"cluster.yaml: {len(lines)} problem" + ("s" if len(lines) > 1 else "")
    assert SECRET not in str(caught.value)
    return [line.removeprefix("  - ") for line in lines]


def test_nothing_said_means_the_defaults() -> None:
    assert parse_config("", "empty") == ClusterConfig()
    assert parse_config("# only a comment\n", "comment") == ClusterConfig()


def test_the_default_classes_are_those_of_the_qlm_paper() -> None:
    config = ClusterConfig()
    assert {name: config.slo(name).deadline_s for name in config.slo_classes} == {
        "interactive": 20,
        "batch-1": 60,
        "batch-2": 3600,
    }
    assert config.slo("interactive") == Slo(name="interactive", deadline_s=20)


def test_every_problem_is_reported_at_its_place() -> None:
    text = """
        models:
          - {name: "a b", source: x}
          - {source: y, max_model_len: 1}
        engine: {block_size: many}
        gateway: {port: 70000}
        admin_port: 0
    """
    assert problems(text) == [
        "models.0.name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._/-]{0,95}$'",
        "models.1.name: Field required",
        "models.1.max_model_len: Input should be greater than or equal to 16",
        "engine.block_size: Input should be a valid integer, unable to parse string as an integer",
        "gateway.port: Input should be less than or equal to 65535",
        "admin_port: Input should be greater than or equal to 1",
    ]


def test_who_swaps_needs_memory_to_swap_to() -> None:
    assert problems("engine: {preemption: swap}") == [
        "engine: preemption: 'swap' needs host_kv_bytes, the host memory to swap to"
    ]
    assert parse_config("engine: {preemption: swap, host_kv_bytes: 1}", "text").engine.preemption == "swap"


def test_unknown_keys_are_errors_wherever_they_stand() -> None:
    assert problems("modles: []\ngateway: {prot: 1}\nnodes: [{name: n, gpu: 1}]") == [
        "nodes.0.gpu: unknown key; there are: device, num_threads, engine, vllm, executor, tensor_parallel, phases, "
        "name, cpus",
        "gateway.prot: unknown key; did you mean 'port'?",
        "modles: unknown key; did you mean 'models'?",
    ]


def test_what_does_not_fit_together_is_reported_at_once() -> None:
    text = f"""
        models: [{{name: m, source: x}}, {{name: m, source: y}}]
        nodes: [{{name: n}}, {{name: scheduler}}, {{name: n}}]
        gateway: {{default_slo: fast}}
        keys:
          - {{key: {SECRET}, tenant: t, slo_classes: [interactive, slow]}}
          - {{key: {SECRET}, tenant: u}}
    """
    known = "(slo_classes: interactive, batch-1, batch-2)"
    assert problems(text) == [
        "models.1: 'm' is there twice",
        "nodes.1.name: 'scheduler' is the name of a service; take another",
        "nodes.2: 'n' is there twice",
        f"gateway.default_slo: 'fast' is no SLO class {known}",
        f"keys.0.slo_classes: 'slow' is no SLO class {known}",
        "keys.1: this key is there twice",
    ]


def test_what_is_predicted_says_what_it_stands_for() -> None:
    text = "models: [{name: m, source: m.gguf, predict_as: gpt-9}]\nengine: {max_models: 2}\nnodes: [{name: n, "
    assert problems(f"{text}executor: predicted, device: a100}}]") == [
        "models.0.predict_as: 'gpt-9' is in no catalogue; there are: mistral-7b, vicuna-13b, llama-70b, "
        "llama-2-70b, opt-13b, opt-30b, llama-13b, llama-33b, llama-3-8b, llama-3.1-8b, llama-3.1-70b, qwen2.5-7b, "
        "qwen2.5-32b, qwen2.5-72b, llama-3-70b, llama-3.1-405b, qwen2-72b, deepseek-67b, mixtral-8x7b, smollm2-135m",
        "engine.max_models: nodes with executor: predicted hold one model at a time; set it to 1",
    ]
    assert problems("nodes: [{name: n, device: a100}, {name: o, executor: predicted, cpus: [0]}]") == [
        "nodes.0: device: a100 can only be predicted; set executor: predicted, or for an NVIDIA device that is there "
        "executor: cuda and device: cuda:0",
        "nodes.1: executor: predicted has no threads that compute; leave cpus empty",
    ]
    (problem,) = problems("nodes: [{name: n, device: b200, executor: predicted}]")
    assert problem.startswith("nodes.0.device: ")


def test_a_node_on_nvidia_devices_names_them_and_nothing_of_a_processor() -> None:
    first, second = parse_config(
        "nodes: [{name: a, executor: cuda, device: 'cuda:1'}, {name: b, executor: cuda, device: 'cuda:2', "
        "tensor_parallel: 2}]",
        "ok",
    ).nodes
    assert (first.cuda_devices, second.cuda_devices) == (["cuda:1"], ["cuda:2", "cuda:3"])
    assert parse_config("{}", "ok").nodes[0].cuda_devices == []
    text = """
        nodes:
          - {name: a, executor: cuda}
          - {name: b, device: "cuda:0"}
          - {name: c, device: "cuda:00"}
          - {name: d, executor: cuda, device: h100, num_threads: 2, cpus: [0, 1]}
          - {name: e, executor: predicted, device: "cuda:1", tensor_parallel: 2}
    """
    nameless = "executor: cuda computes on an NVIDIA device; name it, the first one is device: cuda:0"
    assert problems(text) == [
        f"nodes.0: {nameless}",
        "nodes.1: device: cuda:0 is for executor: cuda; set that too",
        "nodes.2.device: String should match pattern '^(cpu|a10|a100|a800-pcie|h100|h200|cuda:(0|[1-9][0-9]?))$'",
        f"nodes.3: {nameless}",
        "nodes.3: num_threads: 2 is for processors; leave it out with executor: cuda",
        "nodes.3: executor: cuda has no threads that compute; leave cpus empty",
        "nodes.4: device: cuda:1 is for executor: cuda; set that too",
        "nodes.4: tensor_parallel: 2 needs executor: cuda or reference (executor: predicted has no all-reduce); set "
        "one of those, or tensor_parallel: 1",
    ]


def test_an_nvidia_device_belongs_to_one_node_and_keeps_no_int8() -> None:
    text = """
        models: [{name: m, source: m.gguf}, {name: n, source: n.gguf, weights: int8}]
        nodes:
          - {name: a, executor: cuda, device: "cuda:0", tensor_parallel: 2}
          - {name: b, executor: cuda, device: "cuda:1"}
        pools: [{name: p, executor: cuda, device: "cuda:2", max_nodes: 2}, {name: q}]
        scaling: """
    common = [
        "models.1.weights: int8 cannot be loaded with executor: cuda (a); set bfloat16",
        "nodes.1.device: cuda:1 belongs to 'a' already",
    ]
    assert problems(text + "{provider: kubernetes}") == common
    assert problems(text + "{provider: process}") == [
        *common,
        "pools.0.max_nodes: 2 nodes of one machine would share cuda:2; set 1, and make a pool for each device",
    ]
    assert problems(text + "{provider: docker, docker: {}}") == [
        *common,
        "pools.0.executor: scaling.provider: docker gives its containers no NVIDIA device",
    ]


def test_kv_memory_is_measured_only_where_one_model_has_it() -> None:
    nodes = (
        "nodes: [{name: a, executor: cuda, device: 'cuda:0', tensor_parallel: 2}, {name: b}]\nengine: {max_models: 2"
    )
    assert problems(nodes + "}") == [
        "engine.kv_cache_bytes: needed where several models share it on an NVIDIA device (a): what is left beside the "
        "weights differs from model to model",
    ]
    assert problems("nodes: [{name: a, executor: cuda, device: 'cuda:0'}]\nengine: {offload: 'on'}") == [
        "engine.kv_cache_bytes: needed where other nodes (engine.offload) share it on an NVIDIA device (a): what is "
        "left beside the weights differs from model to model",
    ]
    said = parse_config(nodes + ", kv_cache_bytes: 2097152}", "ok").engine
    assert (said.kv_cache_bytes, said.unmeasured_kv_bytes) == (2 << 20, 2 << 20)
    left_out = parse_config("engine: {max_models: 2}", "ok").engine
    assert (left_out.kv_cache_bytes, left_out.unmeasured_kv_bytes) == (None, 512 << 20)
    assert problems("engine: {device_memory_share: 1.5, kv_cache_bytes: 5}") == [
        "engine.kv_cache_bytes: Input should be greater than or equal to 1048576",
        "engine.device_memory_share: Input should be less than or equal to 1",
    ]


def test_who_refuses_the_late_has_promised_a_time() -> None:
    assert problems("slo_classes: {interactive: {tpot_s: 1, late: refuse}}") == [
        "slo_classes.interactive: late: 'refuse' needs ttft_s or deadline_s: without either, no request is ever late"
    ]


@pytest.mark.parametrize("weight", ["0", "-1", "1001", ".nan"])
def test_a_tenant_has_a_weight_above_nothing(weight: str) -> None:
    (problem,) = problems(f"tenants: {{acme: {{weight: {weight}}}}}")
    assert problem.startswith("tenants.acme.weight: ")


def test_each_thread_has_a_cpu_of_its_own_or_none_is_pinned() -> None:
    text = """
        nodes:
          - {name: a, num_threads: 2, cpus: [0]}
          - {name: b, num_threads: 2, cpus: [0, 0]}
          - {name: c, cpus: [-1]}
          - {name: d, num_threads: 2, cpus: [0, 1024]}
    """
    advice = "name one CPU a thread, or none to leave the choice to the system"
    assert problems(text) == [
        f"nodes.0: cpus has 1 entries, num_threads is 2: {advice}",
        "nodes.1.cpus: CPU 0 is there twice; two threads on one CPU wait for each other",
        "nodes.2.cpus.0: Input should be greater than or equal to 0",
        "nodes.3.cpus.1: Input should be less than or equal to 1023",
    ]
    assert parse_config("nodes: [{name: a, num_threads: 2, cpus: [3, 1]}]", "ok").nodes[0].cpus == [3, 1]


def test_two_nodes_cannot_have_the_same_cpu() -> None:
    text = "nodes: [{name: a, cpus: [1]}, {name: b, num_threads: 2, cpus: [0, 1]}, {name: c}, {name: d, cpus: [0]}]"
    assert problems(text) == [
        "nodes.1.cpus: CPU 1 belongs to 'a' already",
        "nodes.3.cpus: CPU 0 belongs to 'b' already",
    ]


def test_a_cluster_has_a_model_and_a_node_or_a_pool_of_them() -> None:
    [problem] = problems("models: []")
    assert problem.startswith("models: List should have at least 1 item")
    assert problems("nodes: []") == [
        "nodes: a cluster needs a node, or a pool of them; leave nodes out for the defaults"
    ]
    assert parse_config("nodes: []\npools: [{name: a100}]", "ok").nodes == []


def test_pools_and_nodes_cannot_be_taken_for_each_other() -> None:
    text = """
        nodes: [{name: cpu-7}]
        pools:
          - {name: cpu, min_nodes: 2}
          - {name: scheduler}
          - {name: cpu-1, executor: predicted, device: a10}
          - {name: cpu-1}
        engine: {max_models: 2}
    """
    found = problems(text)
    assert found[0] == "pools.0: min_nodes: 2 is more than max_nodes: 1"
    assert found[1:] == [
        "pools.0.name: 'cpu-7' is a name for a node of 'cpu'; take another",
        "pools.0.name: 'cpu-1' is a name for a node of 'cpu'; take another",
        "pools.0.name: 'cpu-1' is a name for a node of 'cpu'; take another",
        "pools.1.name: 'scheduler' is the name of a service; take another",
        "pools.3: 'cpu-1' is there twice",
        "engine.max_models: nodes with executor: predicted hold one model at a time; set it to 1",
    ]


def test_who_scales_has_pools_to_scale() -> None:
    assert problems("scaling: {provider: process}") == ["scaling.provider: 'process' has no pools to scale; name some"]


def test_a_pool_is_as_many_nodes_as_it_may_have() -> None:
    config = parse_config(
        "admin_port: 100\nnodes: [{name: a}]\npools: [{name: x, max_nodes: 3, num_threads: 2}, {name: y}]", "pools"
    )
    assert config.node("x-2") == NodeSpec(name="x-2", num_threads=2)
    assert [config.pool_of(name) for name in ("x-2", "y-0", "a")] == [*config.pools, None]
    assert [config.admin_port_of(name) for name in ("a", "x-0", "x-2", "y-0")] == [104, 105, 107, 108]
    for name in ("x-3", "x-02", "x--1", "x-", "x", "y-1", "xy-0"):
        for find in (config.node, config.admin_port_of):
            with pytest.raises(KeyError):
                find(name)


@pytest.mark.parametrize(
    "text",
    [
        f"keys: [{{key: {SECRET}}}]",
        f"keys: [{{key: [{SECRET}], tenant: t}}]",
        f"keys: [{{key: {SECRET}, tenant: '{SECRET} {SECRET}'}}]",
        f"keys: {SECRET}",
        f"redis_url: [{SECRET}]",
        f"redis_url: {{url: {SECRET}}}",
        f"redis_url: redis://:{SECRET}@h:port/0",
    ],
)
def test_no_refusal_shows_a_secret(text: str) -> None:
    assert problems(text)


def test_an_accepted_configuration_hides_its_secrets() -> None:
    config = parse_config(f"keys: [{{key: {SECRET}, tenant: t}}]\nredis_url: redis://:{SECRET}@h/0", "ok")
    assert config.keys[0].key.get_secret_value() == SECRET
    for text in (repr(config), str(config), config.model_dump_json()):
        assert SECRET not in text


@pytest.mark.parametrize("text", ["- a\n- b", "just text", "7"])
def test_the_file_is_a_mapping(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^cluster.yaml: expected a mapping at the top, found (list|str|int)$"):
        parse_config(text, "cluster.yaml")


def test_text_that_is_no_yaml_is_refused_at_its_place_and_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"keys:\n  - key: {SECRET}: x\n", "cluster.yaml")
    assert str(caught.value) == "cluster.yaml: not valid YAML: mapping values are not allowed here in line 2, column 24"


@pytest.mark.parametrize("mark", "*!")
def test_nor_is_what_yaml_takes_for_an_alias_or_a_tag(mark: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"keys:\n  - key: {mark}{SECRET}\n", "cluster.yaml")
    assert SECRET not in str(caught.value)
    assert str(caught.value).endswith("'…' in line 2, column 10")


@pytest.mark.parametrize(
    "value",
    ["2026-13-45", "2026-01-01T25:00:00Z", "1" * 5000, "!!int x", "!!timestamp x", "!!bool x", "!!float x"],
    ids=lambda value: value[:12],
)
def test_what_looks_like_a_number_or_a_date_and_is_none_is_refused_at_its_place(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"models:\n  - name: {value}\n", "cluster.yaml")
    assert str(caught.value) == (
        "cluster.yaml: not valid YAML: this value cannot be read; a text that looks like a number or a date is quoted "
        "in line 2, column 11"
    )


@pytest.mark.parametrize(
    ("text", "why"), [("a: " + "[" * 5000, "it is nested too deeply"), ("a: !!map [x]", "a tag does not fit its value")]
)
def test_nothing_else_that_the_library_raises_gets_through(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^cluster.yaml: not valid YAML: {why}$"):
        parse_config(text, "cluster.yaml")


def test_characters_that_yaml_does_not_allow_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^cluster.yaml: not valid YAML: unacceptable character"):
        parse_config("models: \x00", "cluster.yaml")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(ConfigError, match=f"^{missing}: cannot be read: No such file or directory$"):
        load_config(missing)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=f"^{binary}: cannot be read: it is not UTF-8 text$"):
        load_config(binary)


def test_the_environment_names_the_file_and_an_argument_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.yaml").write_text(f"admin_port: {number}")
    monkeypatch.setenv(CONFIG_ENV, str(tmp_path / "1.yaml"))
    assert load_config().admin_port == 1
    assert load_config(tmp_path / "2.yaml").admin_port == 2
    monkeypatch.setenv(CONFIG_ENV, "")
    assert load_config() == ClusterConfig()


def test_the_redis_of_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("redis_url: redis://file/0")
    monkeypatch.setenv(REDIS_ENV, f"redis://:{SECRET}@env/0")
    found = load_config(file).redis_url
    assert found is not None
    assert found.get_secret_value() == f"redis://:{SECRET}@env/0"
    assert SECRET not in repr(load_config(file))


def test_an_address_that_is_none_is_refused_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems("redis_url: redis://h/x") == [
        "redis_url: the database of an address is a number, such as redis://HOST/0"
    ]
    monkeypatch.setenv(REDIS_ENV, f"redis://:{SECRET}@h:port/0")
    with pytest.raises(ConfigError, match=f"^{REDIS_ENV}: host 1 of the address is no HOST:PORT") as caught:
        load_config()
    assert SECRET not in str(caught.value)


def keys_file(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    path.write_text(text)
    monkeypatch.setenv(KEYS_ENV, str(path))
    return path


def test_the_keys_of_the_environment_override_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("keys: [{key: old, tenant: acme}]")
    keys_file(tmp_path / "keys.yaml", f"- {{key: {SECRET}, tenant: umbrella, slo_classes: [batch-1]}}", monkeypatch)
    (key,) = load_config(file).keys
    assert (key.key.get_secret_value(), key.tenant, key.slo_classes) == (SECRET, "umbrella", ["batch-1"])
    assert load_config(None).keys == [key], "the built-in defaults have keys then, too"


def test_problems_of_both_files_are_reported_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("gateway: {port: 0}")
    keys = keys_file(tmp_path / "keys.yaml", f"[{{key: {SECRET}}}]", monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).splitlines() == [
        f"{file} with {keys}: 2 problems",
        "  - gateway.port: Input should be greater than or equal to 1",
        "  - keys.0.tenant: Field required",
    ]


def test_a_class_that_a_key_may_ask_for_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_file(tmp_path / "keys.yaml", f"[{{key: {SECRET}, tenant: a, slo_classes: [gold]}}]", monkeypatch)
    with pytest.raises(ConfigError, match=r"keys\.0\.slo_classes: 'gold' is no SLO class") as caught:
        load_config()
    assert str(caught.value).startswith(f"{keys}: 1 problem")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "keys: []", f"key: {SECRET}"])
def test_a_file_without_keys_does_not_open_the_gateway(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_file(tmp_path / "keys.yaml", text, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert str(caught.value).startswith(f"{keys}: expected a list of keys")
    assert SECRET not in str(caught.value)


def test_the_collector_of_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("otlp_endpoint: http://file:4318")
    assert load_config(file).otlp_endpoint == "http://file:4318"
    monkeypatch.setenv(OTLP_ENV, "http://env:4318")
    assert load_config(file).otlp_endpoint == "http://env:4318"


def test_values_do_not_change_after_start_up() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ClusterConfig().admin_port = 1


def test_admin_ports_are_consecutive_services_first() -> None:
    config = parse_config("admin_port: 100\nnodes: [{name: a}, {name: b}]", "ports")
    names = ["queue-manager", "scheduler", "kv-manager", "gateway", "a", "b"]
    assert [config.admin_port_of(name) for name in names] == [100, 101, 102, 103, 104, 105]


def test_the_batch_service_is_there_where_it_is_enabled_behind_the_gateway() -> None:
    config = parse_config("batches: {enabled: true}\nadmin_port: 100\nnodes: [{name: a}]\ndata_dir: /data", "ports")
    names = ["gateway", "batches", "a"]
    assert [config.admin_port_of(name) for name in names] == [103, 104, 105]
    assert (batches_url(config), gateway_of_batches(config)) == ("http://127.0.0.1:104", "http://127.0.0.1:8080")
    assert config.batch_folder == Path("/data/batches")
    assert [spec.name for spec in process_plan(config)] == [
        *("queue-manager", "scheduler", "kv-manager", "a", "gateway"),
        "batches",  # it is stopped first, so that a gateway that drains gets nothing new of it
    ]
    with pytest.raises(KeyError):
        ClusterConfig().admin_port_of("batches")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("url: batches:9400", "batches.url: an address begins with http:// or https://"),
        ("max_inflight: 0", "batches.max_inflight"),
        ("keep_s: 60", "batches.keep_s"),
        ("folders: /data", "batches.folders: unknown key; did you mean 'folder'?"),
    ],
)
def test_what_is_wrong_with_batches_is_told_with_its_place(said: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse_config(f"batches: {{{said}}}", "file")


def test_addresses_of_batches_may_be_named() -> None:
    text = "batches: {enabled: true, url: 'http://batches:9400/', gateway_url: 'https://gateway', folder: /disk}"
    config = parse_config(text, "file")
    assert (batches_url(config), gateway_of_batches(config)) == ("http://batches:9400", "https://gateway")
    assert config.batch_folder == Path("/disk")


def test_models_and_nodes_are_found_by_name() -> None:
    config = ClusterConfig()
    assert config.model("smollm2-135m-b").name == "smollm2-135m-b"
    assert config.node("node-1").name == "node-1"
    for find in (config.model, config.node):
        with pytest.raises(KeyError):
            find("none")


def test_a_model_file_lies_where_its_source_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS_ENV, str(tmp_path))
    one, two = (ModelSpec(name="m", source=f"pypi:p=={version}/p/x.gguf") for version in (1, 2))
    assert model_path(one).name == model_path(two).name == "x.gguf"
    assert model_path(one).parent.parent == tmp_path
    assert model_path(one) != model_path(two), "two packages may have files of one name"
    assert model_path(ModelSpec(name="m", source="~/y.gguf")) == Path.home() / "y.gguf"


def test_the_largest_body_fits_into_what_a_gateway_may_hold() -> None:
    parse_config("gateway: {max_body_bytes: 2000, max_inflight_bytes: 77536}", "f.yaml")
    [problem] = problems("gateway: {max_body_bytes: 2000, max_inflight_bytes: 77535}")
    assert problem.endswith("a body of max_body_bytes and its payload may need 77536; take at least 77536")


def test_tiers_without_what_they_need_are_refused_with_what_to_do() -> None:
    assert problems("engine: {tiers: {ssd_bytes: 2000000, host_bytes: 1000000}}") == [
        "engine.tiers: ssd_folder: ssd_bytes needs it, the folder on the SSD that holds them"
    ]
    assert problems("engine: {tiers: {ssd_folder: /ssd, host_bytes: 1000000}}") == [
        "engine.tiers: ssd_bytes: ssd_folder needs it, the room that blocks may take there"
    ]
    assert problems("engine: {tiers: {ssd_folder: /ssd, ssd_bytes: 100}}") == [
        "engine.tiers: ssd_bytes: 100 is less than the least, 1048576",
        "engine.tiers: host_bytes: ssd_bytes needs it, since blocks go through host memory to the SSD and back",
    ]


def test_an_ssd_below_nodes_that_cannot_write_to_it_is_refused() -> None:
    text = """
engine: {tiers: {host_bytes: 1000000, ssd_bytes: 2000000, ssd_folder: /ssd}}
nodes:
  - {name: a, executor: cuda, device: "cuda:0"}
  - {name: b, executor: reference, tensor_parallel: 2}
  - {name: c}
"""
    remedy = "leave engine.tiers.ssd_bytes and ssd_folder out; host_bytes works"
    assert problems(text) == [
        f"engine.tiers.ssd_bytes: a has executor: cuda, whose blocks cannot be written to an SSD yet; {remedy}",
        f"engine.tiers.ssd_bytes: each process of b (tensor_parallel) has a part of every block; {remedy}",
    ]


def test_who_may_weave_is_checked_all_at_once() -> None:
    found = problems(
        """
nodes: [{name: a}, {name: b}, {name: c, executor: reference}]
offload: {hosts: [[a, b], [b, c], [a, d]]}
"""
    )
    assert found == [
        "offload.hosts: engines have no links; set engine.offload to 'on' or 'ahead', or leave it out",
        "offload.hosts.1: 'b' is there twice; a node is on one machine",
        "offload.hosts.1: 'c' computes with reference; links are between executor: cpu or cuda",
        "offload.hosts.2: 'a' is there twice; a node is on one machine",
        "offload.hosts.2: 'd' is no node (nodes: a, b, c); nodes of pools come and go",
    ]
    assert problems(
        """
nodes: [{name: a}, {name: b, executor: cuda, device: "cuda:0"}]
engine: {offload: "on", kv_cache_bytes: 4194304}
offload: {hosts: [[a, b]]}
"""
    ) == ["offload.hosts.0: nodes with executor: cpu and with executor: cuda share no memory; name one kind"]
    assert problems("offload: {ratio: 0.5}") == [
        "offload.ratio: nobody may lend; name the nodes of a machine in offload.hosts, or leave it out"
    ]


@pytest.mark.parametrize(
    "node", ["executor: reference", "executor: cuda, device: 'cuda:0', tensor_parallel: 2"], ids=["reference", "parts"]
)
def test_engines_without_links_offload_nothing(node: str) -> None:
    assert problems(f"nodes: [{{name: a, {node}}}]\nengine: {{offload: 'on', kv_cache_bytes: 4194304}}") == [
        "engine.offload: 'on' needs executor: cpu, or cuda with one device, at every node; a differs"
    ]


def test_nodes_with_a_device_each_may_weave_with_one_another() -> None:
    nodes = ", ".join(f"{{name: {name}, executor: cuda, device: 'cuda:{one}'}}" for one, name in enumerate("ab"))
    offload = "engine: {offload: ahead, kv_cache_bytes: 4194304}\noffload: {hosts: [[a, b]]}"
    assert parse_config(f"nodes: [{nodes}]\n{offload}", "cluster.yaml").offload.host_of("a") == ("b",)


def test_nodes_of_a_host_may_weave_with_one_another() -> None:
    nodes = "nodes: [{name: a}, {name: b}, {name: c}, {name: d}]"
    offload = "engine: {offload: 'on'}\noffload: {hosts: [[a, b, c]], ratio: 0.25}"
    config = parse_config(f"{nodes}\n{offload}", "cluster.yaml")
    assert config.offload.host_of("b") == ("a", "c")
    assert config.offload.host_of("d") == ()
    assert config.offload.ratio == 0.25
