"""`treadle sim` and `treadle plan` as their users run them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.errors import CliError
from cli.main import main
from cli.simulate.checked_run import checked_run
from services.simulator.cluster import cluster
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.simulation import Scenario
from services.simulator.workloads.request import WorkloadRequest
from shared.config.pipelines.pipeline_file import FORMAT, PUBLISHED, PipelineFile, PipelineOperator, encode_pipeline
from shared.config.services.queue import QueueOptions

pytestmark = pytest.mark.slow

SMALL = ["--workload", "wa", "--devices", "a100=1", "--rate", "10", "--requests", "40", "--max-num-seqs", "8"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def found(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert isinstance(report, dict)
    return report


def test_a_run_reports_one_object_that_only_differs_in_the_time_it_took() -> None:
    one, other = found("sim", "run", *SMALL), found("sim", "run", *SMALL)
    assert one.pop("sim_wall_s") > 0
    assert other.pop("sim_wall_s") > 0
    assert json.dumps(one) == json.dumps(other)
    assert one["num_answered"] == 40
    assert set(one["slo_attainment_by_class"]) <= {"interactive", "batch-1", "batch-2"}
    wanted = {"throughput_rps", "output_tok_s", "model_swaps", "evictions", "migrations", "makespan_s", "wait_p50_s"}
    wanted |= {"wait_p99_s", "ttft_p50_s", "ttft_p99_s", "estimator_r2", "estimator_p90_coverage", "num_plans"}
    assert wanted | {"device_utilisation", "slo_attainment"} <= one.keys()


@pytest.mark.parametrize("policy", ["edf", "fcfs", "shepherd"])
def test_every_policy_answers_everything(policy: str) -> None:
    assert found("sim", "run", *SMALL, "--policy", policy)["num_answered"] == 40


def test_devices_that_prefill_hand_all_requests_over_to_those_that_decode() -> None:
    devices = ["--devices", "a100=2", "--prefill", "a100=1", "--decode", "a100=1"]
    assert found("sim", "run", *SMALL, *devices)["migrations"] == 40


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--prefill", "a100=2"], "2 of a100, of which there are 1"),
        (["--decode", "a10=1"], "1 of a10, of which there are 0"),
        (["--prefill", "a100=1"], "no device decodes"),
        (["--decode", "a100=1"], "no device hands its requests over to those that decode (--prefill)"),
    ],
)
def test_phases_that_cannot_be_are_refused(options: list[str], problem: str) -> None:
    result = invoke("sim", "run", *SMALL, *options)
    assert (result.exit_code, result.stderr) == (2, f"Error: --prefill, --decode, --auto: {problem}\n")


def test_without_operations_nobody_gives_way() -> None:
    report = found("sim", "run", *SMALL, "--no-evict", "--no-balance", "--no-migrate", "--no-swap")
    assert (report["evictions"], report["migrations"], report["model_swaps"]) == (0, 0, 0)


def test_trace_and_picture(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "run.png"
    result = invoke("sim", "run", *SMALL, "--trace", str(trace), "--plot", str(picture))
    assert result.exit_code == 0, result.output
    assert "slo_attainment" in result.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def write_trace(path: Path, num_lines: int = 60) -> Path:
    lines = [f"{number / 10},{20 + number},{5 + number % 7}" for number in range(num_lines)]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]) + "\n")
    return path


def test_a_trace_brings_its_own_arrivals(tmp_path: Path) -> None:
    path = str(write_trace(tmp_path / "trace.csv"))
    report = found("sim", "run", "--workload", path, "--slo", "interactive=1")
    assert (report["num_requests"], report["slo_attainment_by_class"]) == (60, {"interactive": 1.0})
    assert report["makespan_s"] == pytest.approx(6, abs=0.5)
    faster = found("sim", "run", "--workload", path, "--rate", "100")
    assert faster["makespan_s"] < 2


def write_contents(path: Path, num_users: int) -> Path:
    """Each user asks with 512 tokens, and comes back with 512 more, when nobody else is there."""
    lines = ["arrival_s,input_tokens,output_tokens,hash_ids"]
    for turn in (0, 1):
        for user in range(num_users):
            hash_ids = " ".join(str(10 * user + part) for part in range(turn + 2))
            lines.append(f"{20 * (turn * num_users + user)},{512 * (turn + 1) + 1},4,{hash_ids}")
    path.write_text("\n".join(lines))
    return path


def test_contents_are_found_again_and_the_engine_that_does_not_know_them_refuses(tmp_path: Path) -> None:
    path = str(write_contents(tmp_path / "trace.csv", num_users=2))
    options = ["--workload", path, "--models", "llama-3.1-8b", "--devices", "h100=2", "--host-bytes", "2147483648"]
    report = found("sim", "run", *options, "--engine", "stepped")
    assert report["num_answered"] == 4
    share = 2 * 512 / (2 * 513 + 2 * 1025)
    assert report["prompt_tokens_found"] == {"all": round(share, 4), "device": round(share, 4), "host": 0.0, "ssd": 0.0}
    assert report["prefixes_fetched"] == 0, "who comes back finds its node idle"
    assert report["prompt_tokens_computed"] == 2 * 513 + 2 * 1025 - 2 * 512
    refused = invoke("sim", "run", *options[:-2])
    assert refused.exit_code == 2
    assert "does not know prompts that begin alike (hash_ids): run with the live bookkeeping" in refused.output
    tiers = invoke("sim", "run", *SMALL, "--host-bytes", "1073741824")
    assert (tiers.exit_code, "does not know tiers TierOptions(host_bytes=1073741824" in tiers.output) == (2, True)


def test_a_plan_of_contents_finds_them_too(tmp_path: Path) -> None:
    path = str(write_contents(tmp_path / "trace.csv", num_users=5))
    options = ["--trace", path, "--models", "llama-3.1-8b", "--device", "h100", "--requests", "10", "--trials", "2"]
    assert found("plan", *options)["devices"] == {"h100": 1}


def test_an_ssd_needs_host_memory() -> None:
    refused = invoke("sim", "run", *SMALL, "--ssd-bytes", "1073741824")
    assert refused.exit_code == 2
    assert "--host-bytes, --ssd-bytes: host_bytes: ssd_bytes needs it" in refused.output


def test_more_host_memory_than_a_machine_has_is_refused_at_once() -> None:
    refused = invoke("sim", "run", *SMALL, "--engine", "stepped", "--host-bytes", str(10**20))
    assert refused.exit_code == 2
    assert "100000000000000000000 is not in the range 0<=x<=8796093022208" in refused.output


def test_a_plan_is_the_least_number_of_the_cheapest_devices(tmp_path: Path) -> None:
    path, picture = str(write_trace(tmp_path / "trace.csv")), tmp_path / "plan.png"
    options = ["--requests", "30", "--trials", "2", "--plot", str(picture)]
    plan = found("plan", "--trace", path, "--device", "a100", "--device", "a10", "--cost", "a100=4,a10=1.5", *options)
    assert plan["devices"] == {"a10": 1}
    assert plan["cost"] == 1.5
    assert plan["attainment_low"] >= plan["target"] == 0.9
    assert [fleet["num_devices"] for fleet in plan["fleets"]] == [1, 1]
    assert picture.exists()
    table = invoke("plan", "--trace", path, "--device", "a100", "--requests", "30", "--trials", "2")
    assert "1 × a100 (cost 1) keep 90%, with 95% confidence" in table.output


def write_lengths(path: Path, *lengths: tuple[int, str]) -> str:
    lines = [f"{number / 10},{tokens - 5},5,{model}" for number, (tokens, model) in enumerate(lengths)]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens,model", *lines]) + "\n")
    return str(path)


def test_requests_are_as_long_as_their_model_s_context(tmp_path: Path) -> None:
    path = write_lengths(tmp_path / "long.csv", *[(4_000, "x")] * 98, (32_768, "x"), (32_769, "x"))
    report = found("sim", "run", "--workload", path)
    assert (report["num_left_out"], report["left_out_share"]) == (1, 0.01), "of 32,768 tokens is mistral-7b"
    assert report["num_requests"] == report["num_answered"] == 99
    plan = ["plan", "--trace", path, "--device", "a100", "--requests", "20", "--trials", "2"]
    assert found(*plan)["num_left_out"] == 1
    assert "left out: 1 requests of long.csv (1.0%), which are too long for their models" in invoke(*plan).output


def test_more_than_a_hundredth_is_left_out_only_where_that_is_allowed(tmp_path: Path) -> None:
    path = write_lengths(tmp_path / "t.csv", *[(4_096, "often"), (4_097, "often")] * 6, *[(4_097, "now and then")] * 4)
    options = ["--workload", path, "--models", "vicuna-13b,llama-3-8b"]
    refused = invoke("sim", "run", *options)
    assert refused.exit_code == 2
    assert f"--workload {path}: 6 of its requests (37.5%) are longer than the context of their model" in refused.output
    assert "(vicuna-13b: 4096 tokens, llama-3-8b: 8192 tokens)" in refused.output
    assert "or leave them out with --allow-left-out" in refused.output
    report = found("sim", "run", *options, "--allow-left-out")
    assert (report["num_requests"], report["num_left_out"], report["left_out_share"]) == (10, 6, 0.375)
    assert invoke("plan", "--trace", path, "--models", "vicuna-13b", "--device", "a100").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "wa"], "--rate is needed"),
        (["--workload", "nothing.csv"], "neither one of wa, wb, wc nor a file"),
        (["--workload", "wa", "--rate", "1", "--devices", "tpu=1"], "'tpu' is no device; there are a10, a100"),
        (["--workload", "wa", "--rate", "1", "--devices", "a10=1.5"], "a10=a whole number above 0"),
        (["--workload", "wa", "--rate", "1", "--devices", "a10=1,a10=2"], "say each device once"),
        (["--workload", "wa", "--rate", "1", "--slo", "fast=1"], "'fast' is no SLO class"),
        (["--workload", "wb", "--rate", "1", "--devices", "a10=1"], "no device can serve 'llama-70b'"),
        (["--workload", "wa", "--rate", "1", "--models", "mistral-7b"], "--models maps those of a trace"),
        (["--workload", "wa", "--rate", "nan"], "'--rate': nan is no finite number"),
        (["--workload", "wa", "--rate", "inf"], "'--rate': inf is no finite number"),
        (["--workload", "wa", "--rate", "1", "--delta", "nan"], "'--delta': nan is no finite number"),
    ],
)
def test_bad_input_is_one_message_that_says_what_to_do(arguments: list[str], message: str) -> None:
    result = invoke("sim", "run", "--requests", "5", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("option", ["--slo-attainment", "--confidence"])
def test_a_share_that_is_no_number_is_refused(option: str) -> None:
    result = invoke("plan", "--trace", "wa", "--rate", "1", "--requests", "10", "--device", "a100", option, "nan")
    assert (result.exit_code, f"'{option}': nan is no finite number" in result.output) == (2, True)


def test_requests_that_come_at_one_time_have_no_rate_to_change(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("input_tokens,output_tokens,arrival_s\n" + "10,5,1\n" * 3)
    assert found("sim", "run", "--workload", str(path))["num_answered"] == 3
    result = invoke("sim", "run", "--workload", str(path), "--rate", "5")
    assert (result.exit_code, "come at one time, which no rate changes: say none" in result.output) == (2, True)


@pytest.mark.parametrize(
    "command", [["sim", "run", *SMALL], ["plan", "--trace", "wa", "--rate", "1", "--requests", "10"]]
)
def test_a_picture_that_cannot_be_written_does_not_cost_the_report(command: list[str], tmp_path: Path) -> None:
    more = ["--trace", str(tmp_path / "trace.json")] if command[0] == "sim" else ["--device", "a100", "--trials", "2"]
    result = invoke(*command, *more, "--plot", str(tmp_path / "none" / "a.png"), "--json")
    assert (result.exit_code, json.loads(result.stdout)["seed"]) == (2, 0)
    assert "none/a.png cannot be written" in result.stderr


def test_the_option_that_was_given_is_the_one_that_is_named() -> None:
    result = invoke("plan", "--trace", "nope.csv", "--device", "a100")
    assert (result.exit_code, result.output) == (
        2,
        "Error: --trace nope.csv: neither one of wa, wb, wc nor a file\n",
    )


def test_a_plan_for_devices_that_are_too_small_is_refused() -> None:
    result = invoke("plan", "--trace", "wb", "--rate", "1", "--device", "a10")
    assert result.exit_code == 2
    assert "--device a10: vicuna-13b, llama-70b does not fit into its memory" in result.output


@pytest.mark.parametrize(
    ("make_engine", "message"),
    [(cluster.fast, "does not know preemption 'swap_only': run with the live bookkeeping"), (cluster.stepped, "")],
)
def test_what_an_engine_cannot_do_it_refuses(make_engine: cluster.MakeEngine, message: str) -> None:
    config = cluster_config(["a100-0"], ["mistral-7b"], QueueOptions())
    scenario = Scenario(
        config.model_copy(update={"engine": replace(config.engine, preemption="swap_only", host_kv_bytes=1 << 30)}),
        devices_of({"a100": 1}, ["mistral-7b"]),
        [WorkloadRequest(0.0, "mistral-7b", "batch-1", prompt_tokens=8, output_tokens=2)],
        make_engine,
    )
    if not message:
        assert [one.reason for one in checked_run(scenario).recording.outcomes] == ["stop"]
        return
    with pytest.raises(CliError) as refused:
        checked_run(scenario)
    assert message in str(refused.value)


def test_corrections_of_predicted_waits_are_left_out_by_name() -> None:
    assert found("sim", "run", *SMALL, "--without", "slack,change-points")["num_answered"] == 40
    result = invoke("sim", "run", *SMALL, "--without", "slack,changepoints")
    assert result.exit_code == 2
    assert result.stderr == "Error: --without: no correction is named 'changepoints'; did you mean 'change-points'?\n"


def test_a_pipeline_that_no_simulated_device_can_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    pipeline = PipelineFile(
        FORMAT,
        *("mistral-7b", "a100", 1, 512),
        profile=PUBLISHED,
        gap=1.0,
        layer_s=1e-3,
        sequential_s=2e-3,
        operators=(PipelineOperator("UGD", (0, 512), "compute", 1.0, 0.0, 1e-3),),
    )
    cases: tuple[tuple[dict[str, Any], tuple[str, ...], str], ...] = (
        ({"device": "h100"}, (), "--pipeline: it is for device 'h100', not for a100"),
        ({"model": "opt-13b"}, (), "--pipeline: it is for model 'opt-13b', not for mistral-7b"),
        ({"num_devices": 2}, (), "it is for device 'a100x2', not for a100"),
        ({"profile": "measured"}, (), "--pipeline: the pipeline's times are 'measured'"),
        ({}, ("--max-num-seqs", "512"), "fill its 512 rows with decodes alone"),
    )
    for changed, more, problem in cases:
        file.write_text(encode_pipeline(replace(pipeline, **changed)))
        result = invoke("sim", "run", *SMALL, "--pipeline", str(file), *more)
        assert result.exit_code != 0
        assert problem in result.output
    assert "cannot be read" in invoke("sim", "run", *SMALL, "--pipeline", str(tmp_path / "none")).output
