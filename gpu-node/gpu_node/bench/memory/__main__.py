"""The process of `treadle bench memory`: ``python -m gpu_node.bench.memory --forms paper,chunked``.

Says on stdout what `gpu_node.bench.report` defines; what is wrong goes to stderr.
"""

from __future__ import annotations

import argparse
import sys

from gpu_node.bench.memory.cases import Case, cpu_cases, predicted_cases, run_predicted
from gpu_node.bench.memory.run import Outcome
from gpu_node.bench.report import MemoryRow, PointProgress, ProfileStart, ReportLine, encode
from gpu_node.engine.border.executor import ModelTooLargeError
from shared.config.config import load_config
from shared.errors import OperatorError


def run(forms: list[str], seed: int, *, quick: bool) -> None:
    """Every case of these forms, a row each."""
    cases = [case for case in predicted_cases(quick=quick) if case.form in forms]
    config = load_config()
    on_cpu = cpu_cases(config.models[0].name, quick=quick) if "cpu" in forms else []
    num_on_cpu = sum(len(same) * load.num_repeats * load.num_requests for load, same in on_cpu)
    _say(ProfileStart(sum(case.num_requests for case in cases) + num_on_cpu))
    for case in cases:
        _say(_row(case, run_predicted(case, seed, _advance(case))))
    if not on_cpu:
        return
    from gpu_node.bench.memory.on_cpu import run_on_cpu  # the predicted forms need no tensors

    for load, same in on_cpu:
        for case, outcome in run_on_cpu(config, same, load.num_repeats, seed, _advance(same[0])):
            _say(_row(case, outcome))


def _row(case: Case, outcome: Outcome) -> MemoryRow:
    return MemoryRow(
        form=case.form,
        device=case.device,
        model=case.model,
        input_tokens=case.input_tokens,
        max_tokens=case.max_tokens,
        policy=case.policy.preemption,
        order=case.policy.order,
        admission=case.policy.admission,
        requests=case.num_requests,
        requests_per_s=outcome.requests_per_s,
        weighted_turnaround=outcome.weighted_turnaround,
        preemptions=outcome.num_preemptions,
        swapped=outcome.num_swapped,
        recomputed=outcome.num_recomputed,
        decision_share=outcome.decision_share,
    )


class _Progress:
    """Passes on how many requests have ended, a whole tenth of a hundred at a time."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._num_ended = 0

    def __call__(self, num_ended: int) -> None:
        self._num_ended += num_ended
        if self._num_ended >= 10:
            _say(PointProgress(self._doing, self._num_ended))
            self._num_ended = 0


def _advance(case: Case) -> _Progress:
    return _Progress(f"{case.form}, {case.input_tokens} tokens")


def _say(line: ReportLine) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.bench.memory", description=__doc__)
    parser.add_argument("--forms", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    try:
        run(arguments.forms.split(","), arguments.seed, quick=arguments.quick)
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
