"""Every kernel compiles to machine code and fits into the shared memory of devices, none of which is here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_node.kernels.triton.attention.poll import PROGRAMS_A_PROCESSOR
from tests.gpu_node.kernels.triton.kept_code import compiling_environment

CAPABILITIES = (90,)
"""All that `compiling_device` knows compile; one is enough here, for it takes a minute of a slow processor."""
PROCESSOR_BYTES = {90: 228 << 10}
"""Of shared memory that a processor's programs have together."""
RESERVED_BYTES = 1 << 10
"""That the system takes of it for each program."""
PROCESSOR_REGISTERS, MOST_REGISTERS = 1 << 16, 256
"""Of a processor, and of a thread."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each kernel's code in every language on its way, in a folder each."""
    folder = tmp_path_factory.mktemp("compiled")
    module = "tests.gpu_node.kernels.triton.compiling_device"
    command = [sys.executable, "-m", module, str(folder), *map(str, CAPABILITIES)]
    done = subprocess.run(command, env=compiling_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_device_gets_machine_code_of_each_kernel(compiled: Path) -> None:
    kernels = {path.stem for path in compiled.glob("*/*.cubin")}
    assert {
        "_norm",
        "_lookup",
        "_decode",
        "_combine",
        "_prefill",
        "serve",
        "_send",
        "_gather",
        "_ask_move",
        "_gates",
        "_outputs",
        "_shrink",
        "_expand",
        "_penalise",
        "_draw",
    } <= kernels
    for kernel in kernels:
        targets = {f"sm_{capability}" for capability in CAPABILITIES}
        found = {
            target for path in compiled.glob(f"*/{kernel}.ptx") for target in targets if target in path.read_text()
        }
        assert found == targets, kernel


def test_programs_with_several_tasks_are_compiled_by_themselves(compiled: Path) -> None:
    """Of attention: whole contexts, split ones, on a part of the device, in a window of an odd size; of prompts, those
    of whole texts, too."""
    assert [len(list(compiled.glob(f"*/{kernel}.cubin"))) for kernel in ("_decode", "_prefill")] == [4, 4]


def test_the_poll_reads_with_acquire_and_answers_with_release_at_the_scope_of_the_system(compiled: Path) -> None:
    for code in (path.read_text() for path in compiled.glob("*/serve.ptx")):
        assert "ld.global.sys.acquire.b64" in code
        assert "atom.global.gpu.acq_rel.add.u64" in code
        assert "atom.global.sys.acq_rel.add.u64" in code
        arrival = code.index("atom.global.gpu.acq_rel.add.u64")
        assert "bar.sync" in code[code.rindex("st.global", 0, arrival) : arrival]


def test_all_programs_of_a_poll_and_of_a_gather_that_serves_fit_a_processor_at_a_time(compiled: Path) -> None:
    """A gather would wait for ever for tiles of its own instances that do not run."""
    found = [json.loads(path.read_text()) for name in ("serve", "_gather") for path in compiled.glob(f"*/{name}.json")]
    attending = [kernel for kernel in found if kernel["shared"] > RESERVED_BYTES]
    assert {kernel["name"] for kernel in attending} == {"serve", "_gather"}
    for kernel in attending:
        assert PROGRAMS_A_PROCESSOR * (kernel["shared"] + RESERVED_BYTES) <= PROCESSOR_BYTES[90]
        assert PROGRAMS_A_PROCESSOR * kernel["num_warps"] * 32 * MOST_REGISTERS <= PROCESSOR_REGISTERS


def test_a_send_tells_of_its_rows_behind_them_and_a_gather_reads_answers_behind_the_counter(compiled: Path) -> None:
    for code in (path.read_text() for name in ("_send", "_ask_move") for path in compiled.glob(f"*/{name}.ptx")):
        told = code.index("atom.global.sys.acq_rel.add.u64")
        assert "bar.sync" in code[code.rindex("st.global", 0, told) : told]
    gathers = [path.read_text() for path in compiled.glob("*/_gather.ptx")]
    ways = 2 * 2 + 1  # rows that are counted on the device or not, with tasks of others or none; and blocks that move
    assert len(gathers) == ways * len(CAPABILITIES)
    for code in gathers:
        assert "ld.global.sys.acquire.b64" in code or "atom.global.sys.acquire.add.u64" in code


def test_weights_of_draws_are_not_fused_into_other_roundings(compiled: Path) -> None:
    for code in (path.read_text() for path in compiled.glob("*/_penalise.ptx")):
        assert "fma.rn.f64" not in code
        assert "mul.f64" in code or "mul.rn.f64" in code
