"""Nodes of the cluster: those that are named one by one, pools of equal ones, and how pools grow and shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from shared.config.engines.engine import Name
from shared.config.engines.tiers import TierOptions
from shared.config.nodes.vllm import VllmOptions
from shared.config.reading.problems import shared_devices
from shared.config.section import PositiveSeconds, Section
from shared.messages.nodes.nodes import BOTH, PhaseOption

KINDS = ("cpu", "a10", "a100", "a800-pcie", "h100", "h200")  # of `shared.config.hardware`
MAX_CPU = 1023  # the highest number that a set of CPUs holds in the C library (CPU_SETSIZE)
MAX_POOL_NODES = 1000  # a pool takes as many consecutive admin ports where its nodes share a machine


class NodeTemplate(Section):
    """What a node is, whatever its name: an agent and an engine that own one device."""

    device: Annotated[str, Field(pattern=rf"^({'|'.join(KINDS)}|cuda:(0|[1-9][0-9]?))$")] = "cpu"
    """``cpu``; ``cuda:N``, the NVIDIA device that has this number for the process; or a kind that is only predicted:
    ``a10``, ``a100``, ``a800-pcie``, ``h100``, ``h200``."""
    num_threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Threads that compute; more than the machine has free cores for make every step wait for the last of them."""
    engine: Literal["treadle", "vllm"] = "treadle"
    """Who computes. ``vllm``: vLLM, in an environment of its own, behind the same queue."""
    vllm: VllmOptions | None = None
    """Of ``engine: vllm``; left out, the environment of ``make vllm-env`` and no further arguments."""
    executor: Literal["cpu", "cuda", "reference", "predicted"] = "cpu"
    """Of ``engine: treadle``. ``cpu``: our kernels, bfloat16. ``cuda``: the same on an NVIDIA device. ``reference``:
    plain torch, float32, slow; the truth to compare with.

    ``predicted``: no device at all. Steps and loads take the time that ``device`` would take by its published numbers,
    KV memory is what it has beside the weights, and tokens are made up; to try the cluster at a size that is not there.
    """
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share each model's heads, with ``num_threads`` and ``kv_cache_bytes`` each, and on NVIDIA devices
    with a device each: ``device`` and those that follow it."""

    phases: PhaseOption = BOTH
    """Of requests, those that it serves. ``prefill``: it computes prompts, and hands the requests over to a node that
    decodes. ``decode``: it goes on with those. A model that no node of a phase has is served by those that have it.
    ``auto``: which of these it does, or ``both``, follows the load."""

    @property
    def cuda_devices(self) -> list[str]:
        """The NVIDIA devices that it owns, one a rank of its group; empty where it computes on something else."""
        if self.kind not in ("cuda", "vllm") or not self.device.startswith("cuda:"):
            return []
        first = int(self.device.removeprefix("cuda:"))
        return [f"cuda:{first + rank}" for rank in range(self.tensor_parallel)]

    @property
    def vllm_options(self) -> VllmOptions:
        """Those of a node with ``engine: vllm``, the defaults where none are given."""
        return self.vllm or VllmOptions()

    @property
    def keeps_kv(self) -> bool:
        """Whether its vLLM lets evicted requests leave with their KV."""
        return self.engine == "vllm" and self.vllm_options.kv == "host"

    @property
    def kind(self) -> str:
        """What computes: the executor, or ``vllm``. What is measured on one kind says nothing of another."""
        return "vllm" if self.engine == "vllm" else self.executor

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        devices = self._vllm_problems() if self.engine == "vllm" else self._device_problems()
        if problems := [*devices, *self._thread_problems()]:
            raise ValueError("\n".join(problems))
        return self

    def _vllm_problems(self) -> list[str]:
        problems = []
        if self.executor != "cpu":
            problems.append(f"executor: {self.executor} belongs to engine: treadle; leave it out with engine: vllm")
        if self.device != "cpu" and not self.device.startswith("cuda:"):
            problems.append(f"device: {self.device} can only be predicted; engine: vllm computes on cpu or cuda:N")
        return problems

    def _device_problems(self) -> list[str]:
        problems = []
        if self.vllm is not None:
            problems.append("vllm: these options are for engine: vllm; set that too, or leave them out")
        is_cuda = self.device.startswith("cuda:")
        if self.executor == "cuda" and not is_cuda:
            problems.append("executor: cuda computes on an NVIDIA device; name it, the first one is device: cuda:0")
        elif is_cuda and self.executor != "cuda":
            problems.append(f"device: {self.device} is for executor: cuda; set that too")
        elif self.device != "cpu" and not is_cuda and self.executor != "predicted":
            problems.append(
                f"device: {self.device} can only be predicted; set executor: predicted, or for an NVIDIA device that "
                "is there executor: cuda and device: cuda:0"
            )
        if self.tensor_parallel > 1 and self.executor not in ("cuda", "reference"):
            problems.append(
                f"tensor_parallel: {self.tensor_parallel} needs executor: cuda or reference (executor: {self.executor} "
                "has no all-reduce); set one of those, or tensor_parallel: 1"
            )
        return problems

    def _thread_problems(self) -> list[str]:
        if self.num_threads > 1 and (self.executor == "cuda" or self.cuda_devices):
            with_what = "executor: cuda" if self.executor == "cuda" else f"device: {self.device}"
            return [f"num_threads: {self.num_threads} is for processors; leave it out with {with_what}"]
        return []


class NodeSpec(NodeTemplate):
    """One node, by name."""

    name: Name
    """What logs and metrics call it."""
    cpus: list[Annotated[int, Field(ge=0, le=MAX_CPU)]] = Field(default_factory=list)
    """The CPUs that the threads stay on, one each, as the system numbers them; empty leaves it to the system.

    ``executor: reference`` stays on them as a whole. Of use where several nodes share a machine: the system moves
    threads between CPUs, and two that meet on one make a step take twice as long.
    """

    @field_validator("cpus")
    @classmethod
    def _each_once(cls, cpus: list[int]) -> list[int]:
        doubles = sorted({cpu for cpu in cpus if cpus.count(cpu) > 1})
        if doubles:
            raise ValueError(f"CPU {doubles[0]} is there twice; two threads on one CPU wait for each other")
        return cpus

    def _thread_problems(self) -> list[str]:
        problems = super()._thread_problems()
        if self.cpus and self.kind in ("cuda", "predicted"):
            problems.append(f"executor: {self.executor} has no threads that compute; leave cpus empty")
        elif self.cpus and self.cuda_devices:
            problems.append(f"device: {self.device} has no threads that compute; leave cpus empty")
        elif self.cpus and len(self.cpus) != self.num_threads:
            problems.append(
                f"cpus has {len(self.cpus)} entries, num_threads is {self.num_threads}: "
                "name one CPU a thread, or none to leave the choice to the system"
            )
        return problems


class NodePool(NodeTemplate):
    """Any number of equal nodes. They are called ``NAME-0``, ``NAME-1``, …, and the last leaves first."""

    name: Name
    """What its nodes' names begin with."""
    min_nodes: Annotated[int, Field(ge=0, le=MAX_POOL_NODES)] = 0
    """With 0 the pool may vanish while no request asks for it; requests are held until a node is back."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_POOL_NODES)] = 1
    """The pool never has more."""
    start_s: PositiveSeconds = 60.0
    """How long a new node takes until it serves: an expectation, until the first one was measured."""

    @model_validator(mode="after")
    def _has_room(self) -> NodePool:
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes: {self.min_nodes} is more than max_nodes: {self.max_nodes}")
        return self

    def node(self, ordinal: int) -> NodeSpec:
        """The node with this number, from 0 on."""
        template = {field: getattr(self, field) for field in NodeTemplate.model_fields}
        return NodeSpec(name=f"{self.name}-{ordinal}", **template)

    def ordinal(self, node: str) -> int | None:
        """The number of a node of this pool; None for any other."""
        digits = node.removeprefix(f"{self.name}-")
        if digits == node or not (digits.isascii() and digits.isdigit()) or str(int(digits)) != digits:
            return None
        return int(digits) if int(digits) < self.max_nodes else None


class DockerOptions(Section):
    """A node's container, where nodes are containers; beside what it is in docker-compose.yml."""

    image: str = "treadle/gpu-node:dev"
    network: Name = "treadle_default"
    """A network of the daemon in which Redis is reached; two clusters of one daemon have two."""
    volumes: list[Annotated[str, Field(pattern=r"^[^:]+:/[^:]*(:(ro|rw))?$")]] = Field(default_factory=list)
    """``HOST_PATH_OR_VOLUME:PATH[:ro]``: the configuration, at the path that the scheduler has it at, and models."""
    environment: dict[str, str] = Field(default_factory=dict)
    memory_bytes: Annotated[int, Field(ge=64 << 20)] = 4 << 30
    """A container that takes more is killed."""


class ScalingOptions(Section):
    """Who starts and stops the nodes of the pools, and when."""

    provider: Literal["none", "process", "docker", "kubernetes"] = "none"
    """``none``: others start them. ``process``: on the scheduler's own machine. ``docker``: containers.
    ``kubernetes``: replicas of the pools' StatefulSets, which have the names of the pools."""
    up_cooldown_s: PositiveSeconds = 5.0
    """A pool that has just grown or shrunk is left alone for this long, unless it has no nodes at all."""
    down_cooldown_s: PositiveSeconds = 300.0
    """A pool shrinks to the most nodes that the promises needed for this long, so to ``min_nodes`` this long after its
    last work."""
    docker: DockerOptions | None = None
    """What ``provider: docker`` needs."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> ScalingOptions:
        if self.provider == "docker" and self.docker is None:
            raise ValueError("docker: provider: docker needs it: image, network and volumes of a node")
        return self


def cuda_problems(
    nodes: Sequence[NodeSpec], pools: Sequence[NodePool], provider: str, int8_models: Sequence[int]
) -> list[str]:
    """What does not go with nodes on NVIDIA devices; ``int8_models``: the models of that type, by their places."""
    names = [node.name for node in nodes if node.cuda_devices] + [pool.name for pool in pools if pool.cuda_devices]
    problems = shared_devices([(node.name, node.cuda_devices) for node in nodes])
    problems += [
        f"models.{number}.weights: int8 cannot be loaded with executor: cuda ({names[0]}); set bfloat16"
        for number in int8_models
        if names
    ]
    for number, pool in enumerate(pools):
        if not pool.cuda_devices:
            continue
        if provider == "docker":
            problems.append(f"pools.{number}.executor: scaling.provider: docker gives its containers no NVIDIA device")
        if provider == "process" and pool.max_nodes > 1:
            problems.append(
                f"pools.{number}.max_nodes: {pool.max_nodes} nodes of one machine would share {pool.device}; set 1, "
                "and make a pool for each device"
            )
    return problems


def ssd_problems(nodes: Sequence[NodeSpec | NodePool], tiers: TierOptions) -> list[str]:
    """Nodes whose blocks cannot be written to the SSD that the tiers ask for."""
    if not tiers.ssd_bytes:
        return []
    nodes = [node for node in nodes if node.engine == "treadle"]  # tiers are its own
    remedy = "leave engine.tiers.ssd_bytes and ssd_folder out; host_bytes works"
    problems = [
        f"engine.tiers.ssd_bytes: {node.name} has executor: {node.executor}, whose blocks cannot be written to an SSD "
        f"yet; {remedy}"
        for node in nodes
        if node.executor not in ("cpu", "reference")
    ]
    problems += [
        f"engine.tiers.ssd_bytes: each process of {node.name} (tensor_parallel) has a part of every block; {remedy}"
        for node in nodes
        if node.executor == "reference" and node.tensor_parallel > 1
    ]
    return problems
