"""`python -m tests.chaos`: run, judge, and say so."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.checker.check import judge, report
from tests.chaos.faults.catalogue import KINDS
from tests.chaos.history import History
from tests.chaos.run import Options, perform

FAULT_SHARE = 1 / 12
"""Of a run that a fault may last: a run of minutes has many kinds, a long one has long ones as well."""
MAX_FAULT_S = 30.0


def main() -> int:
    """Exit status 1 where a promise was broken."""
    arguments = _arguments()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="treadle-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(
        seconds=arguments.seconds,
        seed=arguments.seed,
        folder=folder,
        longest_fault_s=arguments.longest_fault or min(max(arguments.seconds * FAULT_SHARE, 2.0), MAX_FAULT_S),
        kinds=arguments.faults.split(",") if arguments.faults else [],
        say=lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
    )
    history = asyncio.run(_until_signalled(options))
    violations = judge(history)
    history.save(folder / "history")
    for life in history.lives:
        if life.ended_s is not None and not life.was_ours:
            print(f"{life.member} ended by itself at {life.ended_s:.1f} s, status {life.status}", file=sys.stderr)  # noqa: T201
    for violation in violations:
        print(f"{violation.invariant} at {violation.at_s:.1f} s: {violation.what}", file=sys.stderr)  # noqa: T201
    result = report(history, violations)
    print(json.dumps(result) if arguments.json else _readable(result))  # noqa: T201
    if violations:
        again = f"python -m tests.chaos --seconds {arguments.seconds:g} --seed {arguments.seed}"
        again += f" --longest-fault {arguments.longest_fault:g}" if arguments.longest_fault else ""
        again += f" --faults {arguments.faults}" if arguments.faults else ""
        print(f"again: {again}\nhistory: {folder}", file=sys.stderr)  # noqa: T201
    return 1 if violations else 0


async def _until_signalled(options: Options) -> History:
    """The run; SIGTERM ends it, and with it all that it has started, as SIGINT does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await perform(options)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="how long faults go on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest-fault", type=float, help="seconds that a fault lasts at most; else by --seconds")
    parser.add_argument("--faults", default="", help=f"only these, with commas: {', '.join(KINDS)}")
    parser.add_argument("--folder", help="where history and logs go; else a new one")
    parser.add_argument("--json", action="store_true", help="the result as one line")
    return parser.parse_args()


def _readable(result: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in result.items())


if __name__ == "__main__":
    raise SystemExit(main())
