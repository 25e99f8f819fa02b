"""A node whose NVIDIA device is not there, or of no use, says what to install or to set."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from gpu_node.executors.cuda.device import CudaDeviceError, DeviceFacts, find, kind_of
from gpu_node.executors.node_executor import make_executor
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec

H100, T4 = ("NVIDIA H100 80GB HBM3", (9, 0)), ("Tesla T4", (7, 5))
SEEN = DeviceFacts("2.13.0+cu130", "13.0", has_triton=True, devices=(H100, H100, T4))


def test_a_kind_is_what_the_card_calls_itself() -> None:
    assert kind_of(["cuda:1"], SEEN) == kind_of(["cuda:0", "cuda:1"], SEEN) == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("found", "devices", "said"),
    [
        (
            DeviceFacts("2.13.0+cpu", None, has_triton=True),
            ["cuda:0"],
            "torch 2.13.0+cpu knows no CUDA; install a build of torch with CUDA, as PyPI has it for Linux: "
            "pip install 'treadle[cuda]'",
        ),
        (
            replace(SEEN, has_triton=False),
            ["cuda:0"],
            "Triton, which compiles our kernels, is not installed: pip install 'treadle[cuda]'",
        ),
        (
            replace(SEEN, has_compiler=False),
            ["cuda:0"],
            "Triton compiles its link to the driver, and finds no C compiler: install gcc, or set CC",
        ),
        (
            replace(SEEN, trouble="The NVIDIA driver on your system is too old (found version 12040).", devices=()),
            ["cuda:0"],
            "CUDA 13.0 of torch 2.13.0+cu130 does not start: The NVIDIA driver on your system is too old (found "
            "version 12040). (nvidia-smi shows driver and devices; docs/operations.md has the drivers that are "
            "new enough)",
        ),
        (
            SEEN,
            ["cuda:3"],
            "there is no cuda:3: this process sees cuda:0 (NVIDIA H100 80GB HBM3), cuda:1 (NVIDIA H100 80GB HBM3), "
            "cuda:2 (Tesla T4) (CUDA_VISIBLE_DEVICES, or what its container was given)",
        ),
        (
            replace(SEEN, devices=()),
            ["cuda:0"],
            "there is no cuda:0: this process sees no device (CUDA_VISIBLE_DEVICES, or what its container was given)",
        ),
        (SEEN, ["cuda:2"], "cuda:2 is a Tesla T4 of compute capability 7.5; it takes 8.0 (Ampere) or higher"),
        (
            replace(SEEN, devices=(H100, ("NVIDIA A100", (8, 0)))),
            ["cuda:0", "cuda:1"],
            "cuda:0, cuda:1 share models but differ: NVIDIA A100, NVIDIA H100 80GB HBM3; take equal ones",
        ),
    ],
)
def test_what_is_in_the_way_is_said_with_the_remedy(found: DeviceFacts, devices: list[str], said: str) -> None:
    with pytest.raises(CudaDeviceError, match=f"^{re.escape(said)}$"):
        kind_of(devices, found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_node_without_its_device_does_not_start() -> None:
    node = NodeSpec(name="n", executor="cuda", device="cuda:0", tensor_parallel=2)
    with pytest.raises(CudaDeviceError) as caught:
        make_executor(node, EngineOptions(kv_cache_bytes=1 << 20))
    assert torch.__version__ in str(caught.value)


def test_this_process_is_asked() -> None:
    found = find()
    assert (found.torch_version, found.cuda_version) == (torch.__version__, torch.version.cuda)
    assert len(found.devices) == torch.cuda.device_count()
