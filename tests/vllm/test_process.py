"""A real vLLM as its agent sees it: a process at the other end of a socket pair."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    ModelFailed,
    ModelLoaded,
    RunAttempt,
    Shutdown,
    StepReport,
)
from tests.e2e.cluster import wait_for
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.vllm.nodes import chunks_until_end, left, members, ready, request, shared_by, tokens_of, write_config

TEXT = list(range(1000, 1040))


def answer(agent: Agent, name: str, *, prompt: list[int] = TEXT, max_tokens: int = 12, **more: Any) -> list[int]:
    agent.send(RunAttempt(request(name, prompt, max_tokens, **more)))
    return tokens_of(chunks_until_end(agent, name))


def test_a_request_is_answered_a_token_a_frame(agent: Agent) -> None:
    agent.send(RunAttempt(request("a", TEXT, 6)))
    chunks = chunks_until_end(agent, "a")
    assert [(chunk.index, len(chunk.token_ids)) for chunk in chunks] == [(place, 1) for place in range(6)]
    assert (chunks[-1].finish_reason, chunks[-1].is_last) == ("length", True)


def test_what_is_resumed_goes_on_as_if_nothing_had_been(agent: Agent) -> None:
    """Greedily, by a seed, and with penalties; the positions count on."""
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"temperature": 1.0, "seed": 11, "is_seeded": True},
        {"temperature": 0.7, "seed": 12, "is_seeded": True, "presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"repetition_penalty": 1.5, "presence_penalty": 2.0},
    )
    for number, way in enumerate(ways):
        whole = answer(agent, f"whole-{number}", **way)
        rest = answer(agent, f"rest-{number}", output=whole[:5], attempt=1, **way)
        assert rest == whole[5:], way


def test_a_seed_draws_what_it_drew_and_another_something_else(agent: Agent) -> None:
    first, again, other = (
        answer(agent, f"s{number}", temperature=1.5, seed=seed, is_seeded=True) for number, seed in enumerate((3, 3, 4))
    )
    assert first == again != other


def test_logprobs_and_choices(agent: Agent) -> None:
    agent.send(RunAttempt(request("c", TEXT, 3, temperature=1.0, num_choices=2, num_candidates=2, num_logprobs=2)))
    chunks = chunks_until_end(agent, "c")
    for choice in (0, 1):
        assert len(tokens_of([chunk for chunk in chunks if chunk.choice == choice])) == 3
    for chunk in chunks:
        (logprob,) = chunk.logprobs
        assert len(logprob.top) == 2
        assert logprob.top[0][1] >= logprob.top[1][1]
        assert logprob.logprob <= logprob.top[0][1]
    assert [chunk.is_last for chunk in chunks].count(True) == 1


def test_an_aborted_request_is_silent_and_its_blocks_are_free(agent: Agent) -> None:
    agent.send(RunAttempt(request("long", TEXT, 400)), RunAttempt(request("short", TEXT, 3)))
    chunks_until_end(agent, "short")
    agent.send(AbortRequests(["long", "unknown"]), RunAttempt(request("after", TEXT, 8)))
    reports: list[StepReport] = []
    while not any(chunk.request_id == "after" and chunk.is_last for report in reports for chunk in report.chunks):
        event = agent.next()
        assert isinstance(event, StepReport)
        reports.append(event)
    heard = max(report.stats.num_received for report in reports)
    behind = [report for report in reports if report.stats.num_received == heard]
    assert {chunk.request_id for report in behind for chunk in report.chunks} == {"after"}
    assert (behind[-1].stats.num_running, behind[-1].stats.num_free_blocks) == (0, 33)


def test_what_it_lacks_is_refused_by_name(agent: Agent) -> None:
    agent.send(RunAttempt(request("beam", TEXT, 4, is_beam=True, num_candidates=2, num_choices=2)))
    (chunk,) = chunks_until_end(agent, "beam")
    assert (chunk.finish_reason, "no beam search" in chunk.error) == ("refused", True)


def test_steps_are_measured_and_prefixes_found(agent: Agent) -> None:
    long = [7 + number % 100 for number in range(300)]
    answer(agent, "first", prompt=long)
    before = agent_stats(agent, long)
    after = agent_stats(agent, long)
    agent.send(RunAttempt(request("told", long, 2)))
    assert [chunk.cached_tokens for chunk in chunks_until_end(agent, "told")] == [256, None]
    assert after.counts.first_cached_tokens - before.counts.first_cached_tokens == 256, "two of its blocks are whole"
    assert after.cost is not None
    assert 0 < after.step_s < 60
    assert after.counts.num_preemptions == 0


def agent_stats(agent: Agent, prompt: list[int]) -> EngineStats:
    agent.send(RunAttempt(request("stats", prompt, 2)))
    while True:
        event = agent.next()
        assert isinstance(event, StepReport)
        if any(chunk.is_last for chunk in event.chunks):
            return event.stats


def test_models_change_and_those_that_cannot_be_served_say_why(agent: Agent) -> None:
    broken = agent.load("broken")
    assert isinstance(broken, ModelFailed)
    assert "\n" not in broken.error
    assert "nobody" in broken.error, "vLLM's own reason"
    odd = agent.load("odd")
    assert isinstance(odd, ModelFailed)
    assert "\n" not in odd.error
    assert "nobody-s" in odd.error
    too_long = agent.load("long")
    assert isinstance(too_long, ModelFailed)
    assert "KV cache" in too_long.error
    second = agent.load("smol-b")
    assert isinstance(second, ModelLoaded)
    assert (second.source, second.tiers) == ("disk", {"smol": "device", "smol-b": "device"})
    back = agent.load("smol")
    assert isinstance(back, ModelLoaded)
    assert (back.source, back.load_s) == ("device", 0.0)
    assert len(answer(agent, "after")) == 12


def test_all_of_its_processes_may_use_every_cpu_that_it_may(agent: Agent) -> None:
    processes = members(agent.process.pid)
    assert len(processes) >= 3, "the engine's, a core and a worker"
    assert {tuple(process.cpu_affinity()) for process in processes} == {tuple(psutil.Process().cpu_affinity())}


def test_cores_sleep_while_workers_compute(agent: Agent) -> None:
    def used_s(name: str) -> float:
        found = [process for process in members(agent.process.pid) if name in " ".join(process.cmdline())]
        return sum(sum(process.cpu_times()[:2]) for process in found)

    before = {name: used_s(name) for name in ("EngineCore", "Worker")}
    assert len(answer(agent, "long", max_tokens=60)) == 60
    core_s, worker_s = (used_s(name) - before[name] for name in before)
    assert 0 < core_s < worker_s / 4


def test_who_sleeps_misses_no_message_that_comes_right_behind_another(vllm_python: Path) -> None:
    done = subprocess.run([vllm_python, "-m", "tests.vllm.wake_ups"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 0


@pytest.mark.parametrize("victim", ["EngineCore", "Worker", "head"])
def test_when_one_of_its_processes_is_killed_all_of_them_go(config_path: Path, vllm_python: Path, victim: str) -> None:
    with ready(config_path, vllm_python) as agent:
        assert isinstance(agent.load("smol"), ModelLoaded)
        agent.send(RunAttempt(request("a", TEXT, 400)))
        agent.next()
        group = agent.process.pid
        shared = shared_by(group)
        assert len(shared) >= 2, "by which core and worker speak"
        process_named(group, victim).send_signal(signal.SIGKILL)
        with pytest.raises((AssertionError, ConnectionError)):
            chunks_until_end(agent, "nobody's")
        assert agent.exit_status() == (-9 if victim == "head" else 1)
        assert left(group) == []
        wait_for("what it shared is given back", lambda: not any(path.exists() for path in shared))


def process_named(group: int, name: str) -> psutil.Process:
    if name == "head":
        return psutil.Process(group)
    (found,) = (process for process in members(group) if name in " ".join(process.cmdline()))
    return found


def test_shutdown_ends_it(config_path: Path, vllm_python: Path) -> None:
    with ready(config_path, vllm_python) as agent:
        agent.load("smol")
        agent.send(RunAttempt(request("a", TEXT, 400)), Shutdown())
        assert agent.exit_status() == 0


def test_arguments_that_vllm_does_not_know_are_refused_at_once(smol: Path, vllm_python: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, smol, vllm_python)
    path.write_text(path.read_text().replace("--dtype", "--no-such-thing"))
    with process_of(path, (str(vllm_python), "-m", "gpu_node.vllm"), 120.0) as agent:
        refused = agent.next()
        assert "--no-such-thing" in str(refused)
        agent.send(Shutdown())
        assert agent.exit_status() == 1
