"""A short run of the whole suite: some faults under load, and every promise is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.checker.check import judge, report
from tests.chaos.faults.catalogue import KINDS
from tests.chaos.run import Options, perform

HERE = Path(__file__).parent
TIMEOUT_S = 400  # start and end of a whole cluster on a busy machine, and a request's patience
LONGEST_S = 6.0

FIXED = [(1, "kill-queue-manager,engine-killed,kill-redis,reply-lost,bad-entries,kill-at-publish")]


def failed_seeds() -> list[tuple[int, str]]:
    """Those of `failed_seeds.txt`."""
    lines = (HERE / "failed_seeds.txt").read_text().splitlines()
    fields = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [(int(seed), "".join(names)) for seed, *names in fields]


@pytest.mark.e2e
@pytest.mark.usefixtures("model_file", "redis_program")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("seed", "names"), [*FIXED, *failed_seeds()])
async def test_every_promise_is_kept_under_faults(tmp_path: Path, seed: int, names: str) -> None:
    kinds = [name for name in names.split(",") if name]
    said: list[str] = []
    history = await perform(
        Options(0.0, seed, tmp_path, LONGEST_S, kinds or list(KINDS), is_once=True, say=said.append)
    )
    violations = judge(history)
    history.save(tmp_path / "history")
    result = report(history, violations)
    print("\n".join(said), json.dumps(result), f"history: {tmp_path}", sep="\n")  # noqa: T201 - shown with a failure
    assert violations == []
    assert result["tokens_checked"] > 0
