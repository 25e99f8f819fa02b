"""Whether the NVIDIA devices that a node names can be used by this process, and if not, what to install or to set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch

from shared.errors import OperatorError

MIN_CAPABILITY = (8, 0)
"""Compute capability from which on matrix units take bfloat16 (Ampere: A100; A10 and RTX 30 have 8.6)."""

BUILD_ADVICE = "install a build of torch with CUDA, as PyPI has it for Linux: pip install 'treadle[cuda]'"


class CudaDeviceError(OperatorError, ValueError):
    """A device that a node names cannot be used here."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What this process sees."""

    torch_version: str
    cuda_version: str | None
    """That torch was built with; None for a build without CUDA."""
    has_triton: bool
    has_compiler: bool = True
    """Or what Triton would compile with it (`gpu_node.kernels.triton.driver_module`)."""
    trouble: str = ""
    """What CUDA says where it does not start: no driver, or one that is too old for ``cuda_version``."""
    devices: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Name and compute capability of each, by its number."""


def find() -> DeviceFacts:
    """Ask torch, which starts CUDA in this process."""
    found = DeviceFacts(torch.__version__, torch.version.cuda, has_triton=find_spec("triton") is not None)
    if found.cuda_version is None or not found.has_triton:
        return found
    from gpu_node.kernels.triton.driver_module import can_be_had

    found = replace(found, has_compiler=can_be_had())
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return replace(found, trouble=" ".join(str(error).split()))
    devices = (torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count()))
    return replace(found, devices=tuple((one.name, (one.major, one.minor)) for one in devices))


def kind_of(devices: Sequence[str], found: DeviceFacts) -> str:
    """What the devices ``cuda:N`` of a node call themselves: what they do is learnt by this.

    `CudaDeviceError` says what is in the way of using them.
    """
    if found.cuda_version is None:
        raise CudaDeviceError(f"torch {found.torch_version} knows no CUDA; {BUILD_ADVICE}")
    if not found.has_triton:
        raise CudaDeviceError("Triton, which compiles our kernels, is not installed: pip install 'treadle[cuda]'")
    if not found.has_compiler:
        raise CudaDeviceError("Triton compiles its link to the driver, and finds no C compiler: install gcc, or set CC")
    if found.trouble:
        raise CudaDeviceError(
            f"CUDA {found.cuda_version} of torch {found.torch_version} does not start: {found.trouble} "
            "(nvidia-smi shows driver and devices; docs/operations.md has the drivers that are new enough)"
        )
    kinds = set()
    for device in devices:
        number = int(device.removeprefix("cuda:"))
        if number >= len(found.devices):
            raise CudaDeviceError(
                f"there is no {device}: this process sees {_listed(found)} (CUDA_VISIBLE_DEVICES, or what its "
                "container was given)"
            )
        name, capability = found.devices[number]
        if capability < MIN_CAPABILITY:
            raise CudaDeviceError(
                f"{device} is a {name} of compute capability {_text(capability)}; it takes {_text(MIN_CAPABILITY)} "
                "(Ampere) or higher"
            )
        kinds.add(name)
    if len(kinds) > 1:
        raise CudaDeviceError(
            f"{', '.join(devices)} share models but differ: {', '.join(sorted(kinds))}; take equal ones"
        )
    return kinds.pop()


def _listed(found: DeviceFacts) -> str:
    if not found.devices:
        return "no device"
    return ", ".join(f"cuda:{number} ({name})" for number, (name, _) in enumerate(found.devices))


def _text(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
