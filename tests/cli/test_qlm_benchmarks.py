"""The benchmarks of benchmarks/qlm that run in the simulator, on a few requests."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

QLM = Path(__file__).parents[2] / "benchmarks" / "qlm"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QLM)


def output(name: str, options: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    importlib.import_module(name).main()
    return json.loads(capsys.readouterr().out)


def test_attainment_has_a_row_for_each_rate_and_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workload wa --devices a100=1 --rates 5,9 --policies fcfs,qlm --requests 30 --json"
    found = output("attainment", options, monkeypatch, capsys)
    assert found["command"] == f"python attainment {options}"
    (result,) = found["results"]
    assert [(row["rate_rps"], row["policy"], row["num_requests"]) for row in result["rows"]] == [
        (5.0, "fcfs", 30),
        (5.0, "qlm", 30),
        (9.0, "fcfs", 30),
        (9.0, "qlm", 30),
    ]
    # far below what an A100 can do of Mistral 7B
    assert [row["slo_attainment"] for row in result["rows"]] == [1.0] * 4


def test_devices_needed_is_one_where_one_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workload wa --rate 2 --requests 20 --policies qlm,fcfs --json"
    rows = output("devices_needed", options, monkeypatch, capsys)["rows"]
    assert rows == [
        {"policy": "qlm", "num_devices": 1, "tried": {"1": 1.0}, "ratio": 1.0},
        {"policy": "fcfs", "num_devices": 1, "tried": {"1": 1.0}, "ratio": 1.0},
    ]


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
