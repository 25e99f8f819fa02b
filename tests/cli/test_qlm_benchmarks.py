"""The benchmarks of benchmarks/qlm that run in the simulator, on a few requests."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

QLM = Path(__file__).parents[2] / "benchmarks" / "qlm"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QLM)


def output(name: str, options: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    importlib.import_module(name).main()
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", sorted(one.stem for one in QLM.glob("*.py") if "def main()" in one.read_text()))
def test_each_says_what_it_can_be_told(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_attainment_has_a_row_for_each_rate_and_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workload wa --devices a100=1 --rates 5,9 --policies fcfs,qlm --seeds 0,3 --requests 30 --json"
    found = output("attainment", options, monkeypatch, capsys)
    assert found["command"] == f"python attainment {options}"
    (result,) = found["results"]
    assert found["seeds"] == [0, 3]
    assert [(row["rate_rps"], row["policy"], row["seed"], row["num_requests"]) for row in result["rows"]] == [
        (rate, policy, seed, 30) for rate in (5.0, 9.0) for policy in ("fcfs", "qlm") for seed in (0, 3)
    ]
    # far below what an A100 can do of Mistral 7B
    assert [row["slo_attainment"] for row in result["rows"]] == [1.0] * 8


def test_devices_needed_is_one_where_one_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workload wa --rate 2 --requests 20 --policies qlm,fcfs --json"
    rows = output("devices_needed", options, monkeypatch, capsys)["rows"]
    assert rows == [
        {"policy": "qlm", "num_devices": 1, "tried": {"1": 1.0}, "ratio": 1.0},
        {"policy": "fcfs", "num_devices": 1, "tried": {"1": 1.0}, "ratio": 1.0},
    ]


def test_scaling_has_a_row_for_each_way_to_choose_the_number_of_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = "--requests 40 --fixed 2 --targets 0.7 --floors 1 --json"
    found = output("scaling", options, monkeypatch, capsys)
    assert [(row["policy"], row["value"], row["num_requests"]) for row in found["rows"]] == [
        ("slo", 0.0, 40),
        ("utilization", 0.7, 40),
        ("fixed", 2.0, 40),
    ]
    slo, _, fixed = found["rows"]
    assert fixed["node_hours"] == pytest.approx(2 * fixed["makespan_s"] / 3600, abs=1e-3)
    assert 0 < slo["node_hours"] <= max(slo["nodes"]) * slo["makespan_s"] / 3600 + 1e-3  # it is rounded
    importlib.import_module("scaling_plot").plot(found, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


def test_a_row_that_is_kept_is_not_measured_again_by_the_same_code(tmp_path: Path) -> None:
    kept_rows = importlib.import_module("kept_rows")
    path = tmp_path / "a.rows"
    asked: list[str] = []

    def ask(question: str, commit: str) -> Any:
        def measure() -> dict[str, str]:
            asked.append(question)
            return {"answer": f"{question} {commit}"}

        return kept_rows.KeptRows(path, commit).measured(question, measure)["answer"]

    assert [ask("q", "c1"), ask("q", "c1"), ask("p", "c1"), ask("q", "c2"), ask("q", "c1")] == [
        "q c1",
        "q c1",
        "p c1",
        "q c2",
        "q c1",
    ]
    assert asked == ["q", "p", "q"]


def test_rows_are_kept_of_committed_code_only(tmp_path: Path) -> None:
    kept_rows = importlib.import_module("kept_rows")
    with pytest.raises(SystemExit, match="commit"):
        kept_rows.KeptRows(tmp_path / "a.rows", "")
    (tmp_path / "torn.rows").write_text('{"commit": "c1", "ques')
    with pytest.raises(SystemExit, match=r"torn\.rows, line 1 is no row"):
        kept_rows.KeptRows(tmp_path / "torn.rows", "c1")


def test_the_commit_is_that_of_the_code_alone(tmp_path: Path) -> None:
    code_commit = importlib.import_module("kept_rows").code_commit
    assert code_commit(tmp_path) == "", "no repository"

    def git(*words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(file: str) -> str:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(file)
        git("add", ".")
        git("commit", "-m", file)
        return str(code_commit(tmp_path))

    git("init")
    first = commit("code.py")
    assert first
    assert commit("docs/page.md") == commit("tests/test_code.py") == first
    assert commit("benchmarks/data/qlm/rows") == first, "what was measured may be committed and gone on with"
    (tmp_path / "benchmarks" / "data" / "qlm" / "rows").write_text("one more")
    assert code_commit(tmp_path) == first
    second = commit("other.py")
    assert second not in ("", first)
    (tmp_path / "docs" / "page.md").write_text("changed")
    (tmp_path / "results.json").write_text("untracked")
    assert code_commit(tmp_path) == second
    (tmp_path / "other.py").write_text("changed")
    assert code_commit(tmp_path) == ""


def test_the_question_names_all_that_is_simulated() -> None:
    studies = importlib.import_module("studies")
    scale = studies.Scale(num_requests=5, share=1.0)
    (first, second, *_), _ = studies.STUDIES["operations"](scale, 0)
    (again, *_), _ = studies.STUDIES["operations"](scale, 0)
    (seeded, *_), _ = studies.STUDIES["operations"](scale, 1)
    assert first.question() == again.question()
    assert len({first.question(), second.question(), seeded.question()}) == 3


def test_runs_that_differ_by_their_seeds_are_averaged() -> None:
    averages = importlib.import_module("averages")
    common = {"label": "wa 9", "policy": "qlm"}
    runs = [
        {**common, "slo_attainment": 0.5, "ttft_p50_s": None, "by_class": {"a": 1.0, "b": 0.5}},
        {**common, "slo_attainment": 1.0, "ttft_p50_s": 2.0, "by_class": {"a": 0.0}},
        {**common, "policy": "edf", "slo_attainment": 0.25},
    ]
    qlm, edf = averages.averaged(runs)
    assert qlm == {
        **common,
        "slo_attainment": 0.75,
        "ttft_p50_s": 2.0,
        "by_class": {"a": 0.5, "b": 0.5},
        "num_runs": 2,
        "least_attainment": 0.5,
        "most_attainment": 1.0,
    }
    assert (averages.kept(qlm), averages.kept(edf)) == ("75.0% (50.0%–100.0%)", "25.0%")


@pytest.mark.parametrize("study", ["operations", "mixes", "models", "delta"])
def test_all_cases_of_a_study_meet_the_same_requests(study: str) -> None:
    studies = importlib.import_module("studies")
    cases, _ = studies.STUDIES[study](studies.Scale(num_requests=40, share=1.0), 0)
    assert all(case.requests == cases[0].requests for case in cases)
    assert len({(case.label, case.policy) for case in cases}) == len(cases)


def test_a_flood_is_told_apart_by_names_only() -> None:
    studies = importlib.import_module("studies")
    (fair, unknown), _ = studies.STUDIES["tenants"](studies.Scale(num_requests=40, share=1.0), 0)
    assert {one.tenant for one in fair.requests} == {"flood", "quiet"}
    assert {one.tenant for one in unknown.requests} == {"default"}
    assert [one.arrival_s for one in fair.requests] == [one.arrival_s for one in unknown.requests]


def test_policies_measured_one_by_one_are_drawn_together() -> None:
    merged = importlib.import_module("attainment_plot").merged
    one = {"workload": "wa", "devices": {"a100": 5, "a10": 3}, "capacity_rps": 34.0, "rows": [{"policy": "qlm"}]}
    other = {"workload": "wa", "devices": {"a10": 3, "a100": 5}, "capacity_rps": None, "rows": [{"policy": "edf"}]}
    third = {**one, "workload": "wb"}
    found = merged([one, other, third])
    assert [result["rows"] for result in found] == [[{"policy": "qlm"}, {"policy": "edf"}], [{"policy": "qlm"}]]
    assert [result["capacity_rps"] for result in found] == [34.0, 34.0]


@pytest.mark.parametrize("text", ["a100", "a100=0", "tpu=3", "a100=1.5", "a100=1,"])
def test_devices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a100"):
        importlib.import_module("runs").device_counts(text)


def test_the_ceiling_of_predictions_is_measured_at_checkpoints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--policy shepherd --case 0 --requests 40 --checkpoints 2 --children 3 --json"
    (result,) = output("estimator_ceiling", options, monkeypatch, capsys).values()
    first, second = result["checkpoints"]
    assert [(one["number"], len(one["waits_s"])) for one in (first, second)] == [(1_000, 3), (1_020, 3)]
    assert len(set(first["waits_s"])) > 1, "each child draws for itself"
    assert result["all"]["num_waits"] == 6
    assert result["long_queues"] is None, "nobody waits for long"
    assert output("estimator_ceiling", options, monkeypatch, capsys) == {"A100, Mistral 7B": result}


def test_the_ceiling_follows_from_what_nobody_can_know() -> None:
    """Two checkpoints of means 3 and 13 s, variances 2 and 8 s²; both were predicted to wait a second longer."""
    module = importlib.import_module("estimator_ceiling")
    found = [
        module.Checkpoint(0, 50, predicted_s=4.0, bound_s=4.0, waits_s=[2.0, 4.0]),
        module.Checkpoint(1, 200, predicted_s=14.0, bound_s=14.0, waits_s=[11.0, 15.0]),
    ]
    assert module.summary(found) == {
        "all": {
            "num_checkpoints": 2,
            "num_waits": 4,
            "mean_wait_s": 8.0,
            "mean_error_s": 1.0,
            "total": 27.5,  # (6² + 4² + 3² + 7²) / 4
            "noise": 5.0,
            "bias": -1.5,  # 1² - 5 / 2: by so few children it cannot be told from none
            "r2_ceiling": 0.8182,
            "r2": 0.8727,
            "coverage_p90": 0.75,
        },
        "long_queues": None,
    }


def test_what_a_copy_of_the_process_does_stays_there() -> None:
    in_a_copy = importlib.import_module("estimator_ceiling").in_a_copy
    seen = [1]

    def see() -> list[int]:
        seen.append(2)
        return seen

    assert in_a_copy(see) == [1, 2]
    assert seen == [1]

    def fail() -> None:
        raise OSError("no such thing")

    with pytest.raises(RuntimeError, match="a child has failed"):
        in_a_copy(fail)


def test_learnt_rates_are_compared_stream_by_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = output("arrival_rates", "--seeds 2 --json", monkeypatch, capsys)
    assert len(found) == len(importlib.import_module("arrival_rates").CASES)
    for errors in found.values():
        assert list(errors) == ["fading mean of 60 s", "fading mean of 240 s", "change points"]
    stays, changes = found["stays at 3/s"], found["from 1/s to 8/s: the first two minutes"]
    assert stays["change points"] < stays["fading mean of 60 s"]
    assert changes["change points"] < min(changes["fading mean of 60 s"], changes["fading mean of 240 s"])


def test_a_predictor_beside_a_simulation_says_what_its_queue_manager_does() -> None:
    """Means and bounds: it looks at the same state, and learns its own bounds from the same messages."""
    module, accuracy = importlib.import_module("prediction_ablation"), importlib.import_module("estimator_accuracy")
    run = module.RUNS["accuracy 4"](40, 0)
    simulation = module.Simulation(run.scenario)
    predictor = module.Predictor(simulation, run, frozenset())
    simulation.listen(predictor)
    accuracy.run_until_started(simulation, run.judged)
    own = {one.number: one for one in simulation.recording.predictions}
    both = [(own[one.number], one) for one in predictor.found if one.number in own]
    assert len(both) > 20
    assert all(one == other for one, other in both)


def test_what_a_correction_is_worth_is_the_difference_without_it() -> None:
    module = importlib.import_module("prediction_ablation")

    def row(variant: str, seed: int, r2: float, kept: float) -> dict[str, Any]:
        return {
            "run": "x",
            "seed": seed,
            "variant": variant,
            "r2_over_100": None,
            "r2": r2,
            "r2_places": None,
            "coverage_p90": 0.9,
            "kept": kept,
        }

    rows = [row("all", 0, 0.9, 0.99), row("all", 1, 0.8, 0.97)]
    rows += [row("without slack", 0, 0.5, 0.98), row("without slack", 1, 0.8, 0.98)]
    rows += [row("without joining", 0, 0.896, 0.989), row("without joining", 1, 0.796, 0.971)]
    found = module.effects(rows)
    assert list(found) == ["joining", "slack"]
    assert found["slack"]["x"] == {
        "r2_over_100": {"mean": 0.2, "seeds": [0.4, 0.0]},
        "r2_places": None,
        "coverage_p90": {"mean": 0.0, "seeds": [0.0, 0.0]},
        "kept": {"mean": 0.0, "seeds": [0.01, -0.01]},
        "answers_per_s": None,
        "ttft_p99_s": None,
    }
    assert [module.pays(found[name]) for name in ("slack", "joining")] == [True, False]


def test_variants_that_decide_alike_are_judged_by_one_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    module = importlib.import_module("prediction_ablation")
    variants = "all,without slack,without prompts,only calibration"
    (job, other) = module.jobs(["policies wa"], variants.split(","), {"policies": 60}, [0])
    assert (job.chosen, other.chosen) == (("all", "without slack"), ("without prompts", "only calibration"))
    monkeypatch.setattr(module.KeptRows, "of_this_code", lambda path: module.KeptRows(path, "c1"))
    options = ["--runs", "policies wa", "--variants", variants, "--policy-requests", "60", "--seeds", "0", "--json"]
    monkeypatch.setattr(sys, "argv", ["prediction_ablation", *options, "--rows", str(tmp_path / "a.rows")])
    found = []
    for _ in range(2):
        module.main()
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert [row["variant"] for row in found[0]["rows"]] == variants.split(",")
    assert all(row["kept"] == 1.0 for row in found[0]["rows"])
    assert set(found[0]["pays"]) == {"prompts", "slack"}
