"""What one gateway process bears on one core, and LiteLLM's proxy beside it in the same session.

The gateway has the first core for itself. On the second are all others: Redis, the clients (`load/client.py`), and what
stands for the cluster (`load/feeder.py`), which answers through Redis as nodes do: six nodes, of which each has a token
for all its requests every ``--step-s``. Real nodes, queue manager and scheduler would take that core before the gateway
is short of its own; ``--nodes N`` measures with N predicted nodes in real time instead, for as long as that bears.

Throughput is told twice: as it came, and by the processor time that the gateway took (user and kernel), which holds
better where others use the machine too. A token or request a core second is one over the processor time of one.

Where its core is full (``short_streamed_full``) a gateway lets tokens of an answer wait for the next
(`gateway.max_coalesce_s`), as ``events_per_token`` says. ``--plain`` measures one beside it, by turns, that never does.

``--floor`` measures beside it, by turns, what the same tokens and requests cost a process that does nothing but take
them in and write them out through the same libraries (`load/floor.py`); ``floor_share`` is that over the gateway's.

Added time to the first token: at the client, from the writing of a request to the first event with text, less the time
from when the feeder read that request's submit to when it wrote its first token. So all that the gateway does is in it,
both ways through Redis, and what the client's own core makes of it. Requests come by chance (Poisson), 128 tokens each,
at 50 % and 80 % of the rate at which such requests would take all of the core (``core_bears_requests_per_s``).

LiteLLM stands before a stub that streams the same number of words at the same pace (`load/stub.py`), with one worker,
on the same core as the gateway. Runs alternate. Requests a second at equal p99: the most of ours with no higher p99 of
the time from request to the end of the answer than LiteLLM has where it answers most.

    python benchmarks/gateway_load.py --json --litellm /tmp/litellm-venv

Without ``--litellm`` a venv is made in a temporary folder, with pip; ``--litellm none`` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from load import servers
from load.servers import Served

LONG_TOKENS, SHORT_TOKENS = 128, 32
WARM_UP = 200
NUM_OPEN = 2_000
FULL_CLIENTS = 700  # ask for more than a core bears
OPEN_STEP_S = 5.0  # streams that stay open cost little while they are counted
SWEEP = {"treadle": (16, 64, 256, 512), "litellm": (4, 16, 64), "stub": (64, 512)}
SHARES = (0.5, 0.8)
ADDED_S = 6.0  # how long requests come at each share


def summary(seen: dict[str, Any], num_tokens: int) -> dict[str, Any]:
    """One run in numbers."""
    num, cpu_s, duration_s = seen["answered"], seen["cpu_s"], seen["duration_s"]
    if not num:
        return {"errors": seen["errors"]}
    return {
        "answered": num,
        "errors": seen["errors"],
        "requests_per_s": round(num / duration_s, 1),
        "tokens_per_s": round(num * num_tokens / duration_s),
        "requests_per_core_s": round(num / cpu_s, 1),
        "tokens_per_core_s": round(num * num_tokens / cpu_s),
        "cpu_us_per_request": round(1e6 * cpu_s / num, 1),
        "cpu_us_per_token": round(1e6 * cpu_s / num / num_tokens, 2),
        "core_share": round(cpu_s / duration_s, 3),
        "events_per_token": round(seen["events"] / num / num_tokens, 3),
        **percentiles("ttft", seen["ttft_s"].values()),
        **percentiles("e2e", seen["e2e_s"]),
    }


def percentiles(name: str, seconds: Any) -> dict[str, float]:
    """p50 and p99, in milliseconds."""
    values = sorted(seconds)
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100)
    return {f"{name}_p50_ms": round(1e3 * cuts[49], 2), f"{name}_p99_ms": round(1e3 * cuts[98], 2)}


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Number by number over several runs; errors are added up."""
    names = dict.fromkeys(name for run in runs for name in run if name != "errors")
    found = {name: statistics.median(run[name] for run in runs if name in run) for name in names}
    errors: dict[str, int] = {}
    for run in runs:
        for name, num in run["errors"].items():
            errors[name] = errors.get(name, 0) + num
    return {**found, "errors": errors, "runs": len(runs)}


class Session:
    """Servers side by side, asked by turns."""

    def __init__(self, options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._folder = folder
        self._say = say
        self.cores = (options.core, options.other_core)

    def load(self, served: Served, num_requests: int, num_tokens: int, **more: object) -> dict[str, Any]:
        """One run."""
        seen = servers.load(served, self.cores[1], requests=num_requests, max_tokens=num_tokens, **more)
        self._say(f"{served.name} {more}: {summary(seen, num_tokens)}")
        return seen

    def repeated(
        self, all_served: list[Served], num_requests: int, num_tokens: int, **more: object
    ) -> list[dict[str, Any]]:
        """Medians of several runs of each server; runs of different servers take turns."""
        runs: list[list[dict[str, Any]]] = [[] for _ in all_served]
        for _ in range(self._options.rounds):
            for number, served in enumerate(all_served):
                runs[number].append(self.load(served, num_requests, num_tokens, **more))
        return [medians([summary(run, num_tokens) for run in one]) for one in runs]

    def capacity(self, gateway: Served, plain: Served | None, floor: Served | None) -> dict[str, Any]:
        """Streams of long answers, and short ones streamed, with a full core too, and whole; beside the others."""
        streams, num = self._options.streams, self._options.requests
        kinds = {
            "long_streamed": (2 * streams, LONG_TOKENS, {"concurrency": streams, "stream": True}),
            "short_streamed": (num, SHORT_TOKENS, {"concurrency": num // 5, "stream": True}),
            "short_streamed_full": (6 * FULL_CLIENTS, SHORT_TOKENS, {"concurrency": FULL_CLIENTS, "stream": True}),
            "short_whole": (num, SHORT_TOKENS, {"concurrency": num // 5, "stream": False}),
        }
        all_served = [gateway, *(one for one in (plain, floor) if one)]
        found = {name: self.repeated(all_served, *asked, **more) for name, (*asked, more) in kinds.items()}
        result: dict[str, Any] = {name: one[0] for name, one in found.items()}
        for number, served in enumerate(all_served[1:], 1):
            result[served.name] = {name: one[number] for name, one in found.items()}
        if floor:
            result["floor_share"] = {
                name: round(one[-1]["cpu_us_per_request"] / one[0]["cpu_us_per_request"], 3)
                for name, one in found.items()
            }
        return result

    def added(self, gateway: Served, tokens_per_core_s: float) -> dict[str, dict[str, Any]]:
        """Runs at each share of what a core bears, still without what the feeder knows.

        What it bears of requests that come by chance is measured with such requests: the rate at which they would take
        all of it, by the share that they take of it.
        """
        found, bears = {}, tokens_per_core_s / LONG_TOKENS
        for share in SHARES:
            probe = self._at_rate(gateway, share * bears, seed=self._options.rounds)
            bears = min(bears, len(probe["e2e_s"]) / probe["cpu_s"])
            rate = share * bears
            runs = [self._at_rate(gateway, rate, seed) for seed in range(self._options.rounds)]
            found[f"{share:.0%}"] = {"rate": rate, "bears": bears, "runs": runs}
        return found

    def _at_rate(self, gateway: Served, rate: float, seed: int) -> dict[str, Any]:
        return self.load(gateway, int(rate * ADDED_S), LONG_TOKENS, rate=rate, stream=True, seed=seed)

    def sweep(self, all_served: list[Served]) -> dict[str, list[dict[str, Any]]]:
        """Short answers with more and more clients, streamed and whole, by turns."""
        found: dict[str, list[dict[str, Any]]] = {}
        for stream in (True, False):
            for step in range(max(map(len, SWEEP.values()))):
                for served in all_served:
                    if step >= len(SWEEP[served.name]):
                        continue
                    concurrency = SWEEP[served.name][step]
                    num = max(4 * concurrency, 128)
                    [run] = self.repeated([served], num, SHORT_TOKENS, concurrency=concurrency, stream=stream)
                    kind = f"{served.name}_{'streamed' if stream else 'whole'}"
                    found.setdefault(kind, []).append({"concurrency": concurrency, **run})
        return found


def added_summary(found: dict[str, dict[str, Any]], held_s: dict[str, float]) -> dict[str, Any]:
    """Time to the first token less what the feeder held back, request by request."""
    result = {}
    for share, one in found.items():
        runs = []
        for run in one["runs"]:
            added = [ttft_s - held_s[request_id] for request_id, ttft_s in run["ttft_s"].items()]
            numbers = percentiles("added_ttft", added)
            runs.append({**numbers, "errors": run["errors"], "core_share": run["cpu_s"] / run["duration_s"]})
        rates = {"requests_per_s": round(one["rate"], 1), "core_bears_requests_per_s": round(one["bears"], 1)}
        result[share] = {**rates, **medians(runs)}
    return result


def at_equal_p99(sweep: dict[str, list[dict[str, Any]]], kind: str, by: str) -> dict[str, float]:
    """LiteLLM where it answers most, and the most of ours that is no slower; ``by``: which requests a second."""
    theirs = max(sweep[f"litellm_{kind}"], key=lambda one: float(one[by]))
    near = [one for one in sweep[f"treadle_{kind}"] if one["e2e_p99_ms"] <= theirs["e2e_p99_ms"]]
    ours = max((float(one[by]) for one in near), default=0.0)
    return {
        "p99_ms": theirs["e2e_p99_ms"],
        "litellm": theirs[by],
        "treadle": ours,
        "ratio": round(ours / theirs[by], 2),
    }


def memory(session: Session, folder: Path) -> dict[str, float]:
    """What open streams cost: the gateway's own memory with them, less without."""
    folder.mkdir()
    with servers.gateway(folder, session.cores, OPEN_STEP_S) as (gateway, _):
        session.load(gateway, WARM_UP, 1, concurrency=50, stream=True)
        before = gateway.memory_bytes
        most = before
        with ThreadPoolExecutor(1) as pool:
            load = partial(session.load, gateway, NUM_OPEN, 4, concurrency=NUM_OPEN, stream=True)
            clients = pool.submit(load)
            while not clients.done():
                most = max(most, gateway.memory_bytes)
                time.sleep(1.0)
        if clients.result()["errors"]:
            raise RuntimeError(f"not all streams were open: {clients.result()['errors']}")
    return {"before_bytes": before, "open_bytes": most, "bytes_per_stream": round((most - before) / NUM_OPEN)}


def litellm_venv(wanted: str, folder: Path) -> Path | None:
    """The one that is named; one that is made here, where none is; None where it is not wanted."""
    if wanted == "none":
        return None
    if wanted:
        return Path(wanted)
    venv = folder / "litellm"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin" / "pip"), "install", "-q", "litellm[proxy]"], check=True)
    return venv


def measure(options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything, in one session."""
    session = Session(options, folder, say)
    venv = litellm_venv(options.litellm, folder)
    (folder / "gateway").mkdir()
    (folder / "floor").mkdir()
    with ExitStack() as stack:
        gateway, feeder = stack.enter_context(
            servers.gateway(folder / "gateway", session.cores, options.step_s, options.nodes)
        )
        session.load(gateway, WARM_UP, SHORT_TOKENS, concurrency=50, stream=True)
        result: dict[str, Any] = {"behind": f"{options.nodes} predicted nodes" if options.nodes else "feeder"}
        plain = floor = None
        if options.plain:
            (folder / "plain").mkdir()
            plain, _ = stack.enter_context(
                servers.gateway(folder / "plain", session.cores, options.step_s, options.nodes, is_plain=True)
            )
            session.load(plain, WARM_UP, SHORT_TOKENS, concurrency=50, stream=True)
        if options.floor:
            floor = stack.enter_context(servers.floor(folder / "floor", session.cores, options.step_s))
            session.load(floor, WARM_UP, SHORT_TOKENS, concurrency=50, stream=True)
        result |= session.capacity(gateway, plain, floor)
        if feeder is None:
            return result
        if venv is not None:
            stub = stack.enter_context(servers.stub(session.cores[1], options.step_s))
            litellm = stack.enter_context(servers.litellm(folder, venv, session.cores[0], stub))
            session.load(litellm, WARM_UP // 4, SHORT_TOKENS, concurrency=4, stream=True)
            sweep = session.sweep([gateway, litellm, stub])
            result["sweep"] = sweep
            result["at_equal_p99"] = {
                f"{kind}, {by}": at_equal_p99(sweep, kind, by)
                for kind in ("streamed", "whole")
                for by in ("requests_per_s", "requests_per_core_s")
            }
        added = session.added(gateway, result["long_streamed"]["tokens_per_core_s"])
        feeder.terminate()
        held_s = json.loads(feeder.communicate()[0])
        result["added"] = added_summary(added, held_s)
    result["memory"] = memory(session, folder / "memory")
    return result


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--floor", action="store_true", help="the least that a gateway can do, beside it by turns")
    parser.add_argument("--plain", action="store_true", help="a gateway whose tokens never wait, beside it by turns")
    parser.add_argument("--litellm", default="", help="a venv with litellm[proxy]; 'none' leaves it out")
    parser.add_argument("--nodes", type=int, default=0, help="predicted nodes in real time instead of the feeder")
    parser.add_argument("--step-s", type=float, default=0.02, help="time of a step of the feeder and of the stub")
    parser.add_argument("--streams", type=int, default=500, help="streams of 128 tokens at a time")
    parser.add_argument("--requests", type=int, default=1_500, help="short answers of a run, a fifth at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0, help="of the gateway and of LiteLLM")
    parser.add_argument("--other-core", type=int, default=1, help="of everything else")
    options = parser.parse_args()

    def say(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    began = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder), say)
    line = {"command": "benchmarks/gateway_load.py", "step_s": options.step_s, "rounds": options.rounds, **result}
    line["load_before_after"] = [round(began, 2), round(os.getloadavg()[0], 2)]
    print(json.dumps(line) if options.json else json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
