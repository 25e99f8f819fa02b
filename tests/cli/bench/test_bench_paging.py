"""`treadle bench paging`: JSON, tables, drawing, and what is said when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from cli.main import main

SMALL = ("--requests", "24", "--slots", "1024", "--max-tokens", "256")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "paging", *arguments])


def test_the_report_as_json() -> None:
    result = run(*SMALL, "--json")
    assert result.exit_code == 0, result.output
    assert all("requests played" in line for line in result.stderr.splitlines()), "a progress bar, where it takes long"
    report = json.loads(result.stdout)
    assert (report["trace"], report["requests"], report["arrivals"]) == ("generated", 24, "all at once")
    assert report["kv_bytes"] == 1024 * 819_200
    ours, *others = report["schemes"]
    assert [scheme["name"] for scheme in report["schemes"]] == [
        "Treadle (paged)",
        "Orca (Oracle)",
        "Orca (Pow2)",
        "Orca (Max)",
    ]
    assert all(ours["token_states_of_allocated"] > scheme["token_states_of_allocated"] for scheme in others)
    assert all(ours["mean_running"] > scheme["mean_running"] for scheme in others)
    assert all(sum(scheme["memory"].values()) == pytest.approx(1.0) for scheme in report["schemes"])
    sharing = [(saving["method"], saving["sequences"]) for saving in report["sharing"]]
    assert sharing == [(method, number) for method in ("parallel sampling", "beam search") for number in (2, 4, 6)]
    assert report["paper"]["token_states"]["paged"] == 0.963
    assert run(*SMALL, "--json").stdout == result.stdout, "nothing depends on chance or time"


def test_the_tables_name_what_was_run(tmp_path: Path) -> None:
    trace = tmp_path / "lengths.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,50\n0.1,300,20\n0.2,20,30\n")
    result = run(*SMALL, "--trace", str(trace))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == (
        f"{trace}: 2 requests of at most 256 tokens (1 of all are longer and left out), 60.0 in and 40.0 out on "
        "average; arrivals: the trace's"
    )
    assert lines[1] == "1024 slots of KV memory (0.8 GB), blocks of 16"
    rows = [line.split() for line in lines]
    assert [row[:2] for row in rows if row[:1] == ["Orca"]] == [
        ["Orca", f"({name})"] for name in ("Oracle", "Pow2", "Max")
    ]
    assert len([row for row in rows if row[:2] in (["parallel", "sampling"], ["beam", "search"])]) == 6
    assert "arrivals: Poisson, 3/s" in run(*SMALL, "--trace", str(trace), "--rate", "3").stdout


def test_the_drawing_has_a_bar_for_each_scheme_as_wide_as_the_memory(tmp_path: Path) -> None:
    result = run(*SMALL, "--json", "--plot", str(tmp_path / "bars.svg"))
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)
    drawing = ElementTree.parse(tmp_path / "bars.svg").getroot()
    widths: dict[str, float] = {}
    for bar in drawing.iter("{http://www.w3.org/2000/svg}rect"):
        if bar.get("height") == "30":
            widths[bar.attrib["y"]] = widths.get(bar.attrib["y"], 0.0) + float(bar.attrib["width"])
    assert list(widths.values()) == [pytest.approx(600, abs=0.5)] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trace", "/nowhere.csv"), "/nowhere.csv cannot be read"),
        (("--slots", "2047"), "--slots 2047: a sequence of 2048 tokens needs at least 2048"),
        (("--slots", "2048", "--block-size", "100"), "one sequence of 2048 tokens needs"),
        ((*SMALL, "--plot", "/nowhere/bars.svg"), "/nowhere/bars.svg cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
