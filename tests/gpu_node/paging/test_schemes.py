"""The schemes step by step on tiny memories: what each slot is used for, by hand; and ours on a generated trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from gpu_node.paging.contiguous import SCHEMES, ContiguousServer, maximum, oracle, pow2
from gpu_node.paging.generate import generate
from gpu_node.paging.paged import PagedServer
from gpu_node.paging.run import SchemeResult, play
from gpu_node.paging.server import Memory, SchemeServer, SchemeStep
from gpu_node.paging.trace import TraceRequest
from gpu_node.paging.usage import SlotUsage, held_usage

MEMORY = Memory(num_slots=2 << 10, token_bytes=1 << 10, max_tokens=64)
"""2 MiB: engines have no less than one."""


def contiguous(name: str, num_slots: int, max_tokens: int) -> ContiguousServer:
    return ContiguousServer(name, SCHEMES[name], Memory(num_slots, 1, max_tokens))


def run(server: SchemeServer, requests: Sequence[TraceRequest]) -> SchemeResult:
    return play(requests, server, lambda _: None)


def steps(server: SchemeServer, num_steps: int) -> list[SchemeStep]:
    return [server.step(0.0) for _ in range(num_steps)]


def test_what_a_request_asks_for() -> None:
    request = TraceRequest(input_tokens=5, output_tokens=25)
    assert oracle(request, 64) == 29, "the token drawn last is never computed"
    assert pow2(request, 64) == 5 + 32
    assert pow2(TraceRequest(40, 17), 64) == 64, "a sequence cannot be longer"
    assert maximum(request, 64) == 64


def test_what_one_request_holds() -> None:
    assert held_usage(3, 10, 12, 16) == SlotUsage(states=3, reserved=7, internal=2, rounding=4)
    assert held_usage(3, 10, 4, 4) == SlotUsage(states=3, reserved=1), "blocks that come later are not reserved"


def test_the_waste_of_oracle_by_hand() -> None:
    # 16 slots; a needs 3 + 3 - 1 = 5 slots and gets 8, b needs 9 and would get 16: it waits though 8 are free
    server = contiguous("Orca (Oracle)", num_slots=16, max_tokens=16)
    server.add(TraceRequest(3, 3))
    server.add(TraceRequest(9, 1))
    found = steps(server, 4)
    assert [step.usage for step in found] == [
        SlotUsage(states=3, reserved=2, rounding=3, stranded=8),
        SlotUsage(states=4, reserved=1, rounding=3, stranded=8),
        SlotUsage(states=5, reserved=0, rounding=3, stranded=8),
        SlotUsage(states=9, rounding=7),
    ]
    assert [(step.num_running, step.num_waiting, step.num_finished) for step in found] == [
        (1, 1, 0),
        (1, 1, 0),
        (1, 1, 1),
        (1, 0, 1),
    ]


def test_the_waste_of_pow2_and_max_by_hand() -> None:
    # 3 tokens in, 3 out: 5 slots are used at the end. Pow2 asks for 3 + 4 and gets 8; Max asks for 16
    pow2_server, max_server = (contiguous(name, 24, 16) for name in ("Orca (Pow2)", "Orca (Max)"))
    for server in (pow2_server, max_server):
        server.add(TraceRequest(3, 3))
        server.add(TraceRequest(3, 3))
    assert steps(pow2_server, 1)[0].usage == SlotUsage(states=6, reserved=4, internal=4, rounding=2, headroom=8)
    first = steps(max_server, 1)[0]
    assert first.usage == SlotUsage(states=3, reserved=2, internal=11, stranded=8)
    assert (first.num_running, first.num_waiting) == (1, 1)


def test_the_waste_of_blocks_by_hand() -> None:
    # blocks of 4. a: 5 tokens in, 5 out: 9 slots at the end; b: 3 in, 1 out
    server = PagedServer(MEMORY, block_size=4)
    server.add(TraceRequest(5, 5))
    server.add(TraceRequest(3, 1))
    found = steps(server, 5)
    free = MEMORY.num_slots
    assert [step.usage for step in found] == [
        SlotUsage(states=5 + 3, reserved=3, internal=1, headroom=free - 12),
        SlotUsage(states=6, reserved=2, headroom=free - 8),
        SlotUsage(states=7, reserved=1, headroom=free - 8),
        SlotUsage(states=8, headroom=free - 8),
        SlotUsage(states=9, internal=3, headroom=free - 12),
    ]
    assert [step.num_finished for step in found] == [1, 0, 0, 0, 1]
    server.check()


def test_slots_that_fill_no_block_are_lost() -> None:
    server = PagedServer(Memory(2050, 1 << 10, 64), block_size=16)
    server.add(TraceRequest(16, 1))
    assert server.step(0.0).usage == SlotUsage(states=16, stranded=2, headroom=2048 - 16)


def test_only_the_steady_part_is_averaged() -> None:
    # 16 slots in ranges of 8, so two at a time, each for two steps
    server = contiguous("Orca (Max)", num_slots=16, max_tokens=8)
    outcome = run(server, [TraceRequest(1, 2)] * 6)
    assert outcome.num_steps == 6
    assert outcome.num_steady_steps == 2, "the first two have not ended; in the last two nobody waits"
    assert (outcome.mean_running, outcome.mean_waiting) == (2.0, 2.0)
    assert outcome.usage == SlotUsage(states=2 + 4, reserved=2, internal=24)
    assert outcome.usage.share_of_allocated == pytest.approx(6 / 32)
    assert sum(outcome.usage.shares().values()) == pytest.approx(1.0)


def test_requests_wait_for_their_arrival_and_a_short_run_is_averaged_whole() -> None:
    server = contiguous("Orca (Max)", num_slots=16, max_tokens=8)
    outcome = run(server, [TraceRequest(1, 1), TraceRequest(1, 1, arrival_s=100.0)])
    assert (outcome.num_steps, outcome.mean_running) == (2, 1.0)
    assert outcome.duration_s > 100.0
    server = contiguous("Orca (Max)", num_slots=16, max_tokens=8)
    together = run(server, [TraceRequest(1, 1), TraceRequest(1, 1)])
    assert (together.num_steps, together.num_steady_steps, together.mean_running) == (1, 0, 2.0)


@pytest.mark.slow
def test_paged_memory_holds_token_states_and_more_requests() -> None:
    requests = generate(200, max_tokens=1024, seed=1).requests
    memory = Memory(4096, 1 << 10, 1024)
    ours = run(PagedServer(memory, 16), requests)
    others = [run(ContiguousServer(name, scheme, memory), requests) for name, scheme in SCHEMES.items()]
    assert ours.usage.share_of_allocated >= 0.96
    assert [one.usage.share_of_allocated < 0.6 for one in others] == [True] * 3
    by_batch = [one.mean_running for one in (ours, *others)]
    assert by_batch == sorted(by_batch, reverse=True)
    assert by_batch[0] > 1.5 * by_batch[1]
    assert ours.num_steps < min(one.num_steps for one in others)
    again = run(PagedServer(memory, 16), requests)
    assert again == ours, "the same input gives the same outcome"


def test_memory_pressure_preempts_and_everything_ends() -> None:
    # the first ends teach the scheduler that answers are short; then long ones come
    requests = [TraceRequest(8, 2)] * 64 + [TraceRequest(8, 56)] * 80
    server = PagedServer(Memory(1 << 10, 1 << 10, 64), block_size=4)
    outcome = run(server, requests)
    assert outcome.num_preemptions > 0
    server.check()


def test_no_torch_is_loaded() -> None:
    code = "import gpu_node.paging.comparison, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
