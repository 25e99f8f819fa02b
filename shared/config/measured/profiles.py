"""What `treadle profile` has measured: one file in the data folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError
from shared.messages.nodes.step_cost import StepCost

FORMAT = "treadle profiles 1"
MAX_PROFILES = 1_000
"""Kept in a file; the one that was measured longest ago goes first."""


class ProfileError(OperatorError, ValueError):
    """A file of profiles that cannot be used; the text says what to do."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model on one kind of node."""

    model: str
    source: str
    """As in the configuration: another file under the same name has another profile."""
    weights: str
    device: str
    executor: str
    """``vllm`` where that is the engine."""
    num_threads: int
    tensor_parallel: int
    cost: StepCost
    held_out_error: float
    """Median of |predicted / measured - 1| over steps of other sizes than those that the cost was fitted to."""
    disk_load_s: float
    """Until the model could serve, from its file."""
    host_load_s: float
    """Likewise from host memory; 0.0 where weights do not stay there."""
    kv_bytes_per_s: float
    """Between device and host memory; 0.0 where the executor cannot move them."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    profiles: list[Profile]


def profiles_file(config: ClusterConfig) -> Path:
    """Where the profiles of a cluster are."""
    return config.data_dir.expanduser() / "profiles.json"


def read_profiles(path: Path) -> list[Profile]:
    """All of a file; none where there is no file. `ProfileError` where it is something else."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as error:
        raise ProfileError(
            f"{path}: holds no profiles of treadle ({error}); delete it, and run `treadle profile` again"
        ) from error
    if file.format != FORMAT:
        raise ProfileError(
            f"{path}: its format is {file.format!r}, expected {FORMAT!r}; delete it, and run `treadle profile` again"
        )
    return file.profiles


def encode_profiles(profiles: Iterable[Profile]) -> str:
    """The content of a file."""
    kept = list(profiles)[-MAX_PROFILES:]
    return msgspec.json.format(msgspec.json.encode(_File(FORMAT, kept)), indent=2).decode() + "\n"


def add_profile(profiles: Iterable[Profile], new: Profile) -> list[Profile]:
    """With ``new`` at the end, and without what was measured of the same before."""
    return [*(old for old in profiles if _key(old) != _key(new)), new]


def profiled_cost(profiles: Iterable[Profile], spec: ModelSpec, node: NodeSpec, device: str) -> StepCost | None:
    """What was measured of a model on such a node; ``device``: its kind, as it calls itself."""
    key = _key_of(spec, node, device)
    return {_key(profile): profile.cost for profile in profiles}.get(key)


def _key_of(spec: ModelSpec, node: NodeSpec, device: str) -> tuple[object, ...]:
    """What has to be the same for a profile to hold."""
    return (
        spec.name,
        spec.source,
        spec.weights,
        device,
        node.kind,
        node.num_threads,
        node.tensor_parallel,
    )


def _key(profile: Profile) -> tuple[object, ...]:
    return (
        profile.model,
        profile.source,
        profile.weights,
        profile.device,
        profile.executor,
        profile.num_threads,
        profile.tensor_parallel,
    )
