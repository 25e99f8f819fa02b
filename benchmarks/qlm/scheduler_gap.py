"""How far the anytime scheduler is from the optimum of the mixed-integer program (QLM, SoCC'24 §6), and how fast it is.

Random small problems: two or three devices of two kinds, three models, two to five request groups of which some run,
tight and loose deadlines. The gap is (cost found - least cost) / least cost, by the cost function that both optimise
(`services.scheduler.solving.problem.cost`). The least cost counts the seconds until every waiting request is done, so
it is never near zero, unless nobody waits: such problems are drawn again. Problems whose optimum HiGHS could not prove
in time count in ``num_unproven`` and in no gap. Prints one JSON object or a table.

    python benchmarks/qlm/scheduler_gap.py --instances 200 --json
    python benchmarks/qlm/scheduler_gap.py --large --json

``--large`` plans 400 groups on 80 devices, as QLM's evaluation has them, from nothing and from the last plan; seconds
are processor time of one core, by the function that the service calls.
"""

from __future__ import annotations

import argparse
import json
import time
from random import Random
from statistics import fmean

from rich.console import Console
from rich.progress import track
from rich.table import Table

from services.scheduler.placement import solve
from services.scheduler.solving.methods.anytime import search
from services.scheduler.solving.methods.exact import solve_exactly
from services.scheduler.solving.problem.cost import total_cost
from services.scheduler.solving.problem.tables import make_instance
from shared.config.hardware import device_named, fits, kv_bytes_per_s, load_s, model_named, model_rate
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, PlacementProblem

MODELS = [model_named(name) for name in ("mistral-7b", "vicuna-13b", "llama-70b")]
NUM_SEQS = {"a100": 128, "a10": 48}


def node(name: str, device: str, model: str) -> NodeState:
    """A device that holds ``model`` and has the others in host memory; what does not fit is broken there."""
    kind = device_named(device)
    return NodeState(
        name,
        model,
        swap_s=load_s(kind, model_named(model), "host"),
        broken_models=[each.name for each in MODELS if not fits(kind, each)],
        device=device,
        max_num_seqs=NUM_SEQS[device],
        step_tokens=2048,
        kv_bytes_per_s=kv_bytes_per_s(kind),
        rates=[model_rate(kind, each, None if each.name == model else "host") for each in MODELS if fits(kind, each)],
    )


def group(random: Random, name: str, nodes: list[NodeState], load: float) -> GroupLoad:
    """Of any model and promise; some run where their model is. ``load`` scales sizes."""
    model = random.choice(MODELS).name
    slo, within_s = random.choice((("interactive", 20.0), ("batch-1", 60.0), ("batch-2", 3600.0)))
    homes = [each.node for each in nodes if each.model == model]
    num_running = random.randint(1, 64) if homes and random.random() < 0.4 else 0
    num_waiting = random.randint(0 if num_running else 1, max(1, round(256 * load)))
    prompt, output = random.randint(20, 2000), random.randint(20, 600)
    return GroupLoad(
        group=name,
        model=model,
        deadline_s=within_s * random.uniform(-0.2, 1.0),
        node=random.choice(homes) if num_running else "",
        slo=slo,
        rank=random.random(),
        num_waiting=num_waiting,
        num_running=num_running,
        mean_prompt_tokens=float(prompt),
        mean_output_tokens=float(output),
        std_output_tokens=output * random.uniform(0.2, 1.0),
        running_output_tokens=num_running * output * random.uniform(0.1, 0.9),
        max_tokens=1024.0,
        kv_tokens=float(num_running * (prompt + output / 2)),
    )


def problem(random: Random, num_nodes: int, num_groups: int, load: float = 1.0) -> PlacementProblem:
    """Random devices and groups."""
    nodes = []
    for number in range(num_nodes):
        device = random.choice(("a100", "a100", "a100", "a100", "a100", "a10", "a10", "a10"))  # 50 to 30, as the paper
        fitting = [each.name for each in MODELS if fits(device_named(device), each)]
        nodes.append(node(f"n{number}", device, random.choice(fitting)))
    groups = [group(random, f"g{number}", nodes, load) for number in range(num_groups)]
    return PlacementProblem(version=1, now_s=0.0, nodes=nodes, groups=groups)


def small_problem(random: Random) -> PlacementProblem:
    """Small enough to be solved exactly; somebody waits."""
    while True:
        num_groups = random.randint(2, 5)
        drawn = problem(random, 2 if num_groups == 5 else random.randint(2, 3), num_groups)
        if any(each.num_waiting for each in drawn.groups):
            return drawn


def measure_gap(num_instances: int, seed: int) -> dict[str, float]:
    """Anytime against exact."""
    random = Random(seed)
    gaps, exact_s, anytime_s, num_unproven = [], [], [], 0
    for _ in track(range(num_instances), "solving", console=Console(stderr=True)):
        instance = make_instance(small_problem(random))
        started = time.process_time()
        found = search(instance, [[] for _ in instance.nodes]).best
        anytime_s.append(time.process_time() - started)
        started = time.process_time()
        exact = solve_exactly(instance, found)
        exact_s.append(time.process_time() - started)
        if exact.is_optimal:
            least = total_cost(instance, exact.queues)
            gaps.append((total_cost(instance, found) - least) / least)
        else:
            num_unproven += 1
    gaps.sort()
    return {
        "instances": num_instances,
        "num_unproven": num_unproven,
        "max_gap": round(gaps[-1], 6),
        "p95_gap": round(gaps[int(0.95 * (len(gaps) - 1))], 6),
        "mean_gap": round(fmean(gaps), 6),
        "optimal_share": round(sum(gap < 1e-6 for gap in gaps) / len(gaps), 4),
        "anytime_s_max": round(max(anytime_s), 4),
        "exact_s_mean": round(fmean(exact_s), 3),
        "exact_s_max": round(max(exact_s), 3),
    }


def measure_large(num_nodes: int, num_groups: int, seed: int) -> dict[str, float]:
    """Plan time of a large problem, from nothing, and again from that plan when somebody new has come."""
    random = Random(seed)
    drawn = problem(random, num_nodes, num_groups)
    started = time.process_time()
    cold = solve(drawn)
    cold_s = time.process_time() - started
    again = PlacementProblem(
        version=2,
        now_s=1.0,
        nodes=drawn.nodes,
        groups=[*drawn.groups, group(random, f"g{num_groups}", drawn.nodes, 1.0)],
        queues=cold.queues,
    )
    started = time.process_time()
    solve(again)
    warm_s = time.process_time() - started
    return {
        "nodes": num_nodes,
        "groups": num_groups,
        "plan_s": round(cold_s, 3),
        "warm_plan_s": round(warm_s, 3),
        "late_request_s": round(cold.late_s, 1),
        "num_swaps": cold.num_swaps,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=200, help="small problems (default 200)")
    parser.add_argument("--large", action="store_true", help="time one large problem instead")
    parser.add_argument("--nodes", type=int, default=80, help="devices of the large problem")
    parser.add_argument("--groups", type=int, default=400, help="its request groups")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args()
    if min(args.instances, args.nodes, args.groups) < 1:
        parser.error("--instances, --nodes and --groups must be at least 1")
    report = measure_large(args.nodes, args.groups, args.seed) if args.large else measure_gap(args.instances, args.seed)
    if args.json:
        print(json.dumps(report))
        return
    table = Table("figure", "value")
    for name, value in report.items():
        table.add_row(name, str(value))
    Console().print(table)


if __name__ == "__main__":
    main()
