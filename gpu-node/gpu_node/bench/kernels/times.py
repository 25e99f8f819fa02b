"""Best time of each operator within its layer: what a step takes less without it, by rows (NanoFlow, §4.1.1).

So weights are as warm as in a step, where those of all other operators of all layers come between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from gpu_node.bench.kernels.executors import MAX_CONTEXT_TOKENS, TimedExecutor
from gpu_node.bench.kernels.roles import ATTENTION, FEED_FORWARD, KQV, OUTPUT, ROLES, num_layers
from gpu_node.engine.border.plan import StepPlan
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.program import Program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.measured.pipeline_profile import OperatorTime

GRANULE_ROWS = 16
ROWS = (16, 32, 64, 128, 256)
CONTEXTS = (128, 384)
NUM_ROUNDS = 5
"""Of each size; all executors come in each."""
MAX_ROUNDS = 40
"""While the time of an operator is still lost in what else the machine does."""


def operator_times(
    program: Program,
    options: EngineOptions,
    spec: ModelSpec,
    token_bytes: int,
    cpus: Sequence[int],
    say: Callable[[str], None],
) -> list[OperatorTime]:
    """Of the program of a model as it comes from its architecture."""
    counts = num_layers(optimize(program))
    executors: dict[str, TimedExecutor] = {}
    try:
        for role in ("", *ROLES):
            say(f"loading {spec.name} {f'without {role}' if role else ''}".strip())
            executors[role] = TimedExecutor(options, spec, token_bytes, cpus, (role,) if role else ())
        whole, found = executors[""], []
        contexts = [context for context in CONTEXTS if context <= whole.max_model_len] or [whole.max_model_len]
        for context in contexts:
            for rows in sizes(options, context):
                say(f"{rows} rows, {context} tokens each")
                products = (
                    [(KQV, KQV), (OUTPUT, OUTPUT), (FEED_FORWARD, FEED_FORWARD)] if context == contexts[0] else []
                )
                kinds = [*products, (ATTENTION, "DecAttn")]
                found += _times(executors, whole.decodes(rows, context), kinds, counts, rows, context)
                kinds = [(ATTENTION, "PfAttn")]
                found += _times(executors, whole.prompts(rows, context), kinds, counts, rows, context)
        return found
    finally:
        for executor in executors.values():
            executor.close()


def sizes(options: EngineOptions, context_tokens: int) -> list[int]:
    """Rows of steps that the engine makes, and whose keys and values there is room for."""
    return [rows for rows in ROWS if rows <= options.step_tokens and rows * context_tokens <= MAX_CONTEXT_TOKENS]


def _times(
    executors: dict[str, TimedExecutor],
    plan: StepPlan,
    kinds: Sequence[tuple[str, str]],
    counts: dict[str, int],
    rows: int,
    context: int,
) -> list[OperatorTime]:
    """By role and name; the executors take turns, so that what else the machine does meets all of them alike."""
    roles = [role for role, _ in kinds]
    best_s = dict.fromkeys(("", *roles), inf)
    for number in range(MAX_ROUNDS + 1):
        if number > NUM_ROUNDS and all(best_s[role] < best_s[""] for role in roles):
            break
        for role in best_s:
            (seconds,) = executors[role].times_s(plan, 1)
            if number:  # the first warms up
                best_s[role] = min(best_s[role], seconds)
    return [
        OperatorTime(name, context if role == ATTENTION else 0, rows, (best_s[""] - best_s[role]) / counts[role])
        for role, name in kinds
        if best_s[""] > best_s[role]  # else it is lost in what the measurement is worth
    ]
