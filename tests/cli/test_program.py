"""`treadle program`: the table, the bounds, the drawing, and what is said when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from cli.program.report import short_number
from cli.program.words import WHAT_IT_DOES
from gpu_node.graph.program import OperatorKind

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 100}


@pytest.fixture
def llama(tmp_path: Path) -> str:
    return write(tmp_path / "llama", LLAMA)


def write(path: Path, config: dict[str, object]) -> str:
    """A directory with a configuration and no weights: they are not needed to know what a step costs."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["program", *arguments])


def rows_of(output: str, operator: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip().startswith(operator)]


def test_the_table_tells_the_step_layer_by_layer(llama: str) -> None:
    result = run(llama, "--rows", "8", "--context", "100")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "llama: 4 layers, rows of 64 numbers, 4 heads of 16 numbers sharing 2 of keys and values, feed-forward 128, "
        "vocabulary 1000, context 2048"
    )
    assert lines[1].startswith("a step of 8 rows (tokens) of 8 sequences that are each 100 tokens long after it; 8 ")
    assert [line.strip() for line in lines if line.startswith(("before", "layer", "after"))] == [
        "before the layers",
        "layer 0 (layers 1–3 the same)",
        "after the layers",
    ]
    gate = next(row for row in rows_of(result.stdout, "linear") if "gate" in row)
    # 2 * 8 rows * 64 * 128; weights of 64 * 128 and rows of 64 and 128 numbers, two bytes each
    assert gate[1:11] == ["normed", "[8×64]", "gate", "[8×128]", "gate", "[128×64]", "compute", "131", "k", "19.5"]
    (attention,) = rows_of(result.stdout, "paged_attention")
    assert " ".join(attention).endswith("mix the values of all tokens before, by how their keys match")
    (step,) = rows_of(result.stdout, "the step")
    assert step[-2:] == ["100.0", "100.0"]


def test_a_device_gives_the_time_bound(llama: str) -> None:
    # the head alone reads 128 kB of weights, so at 1 GB/s a step takes more than 128 µs, whatever the compute rate
    result = run(llama, "--gb-per-s", "1", "--tflops", "1000")
    assert "set by memory (memory " in result.stdout
    assert "operator after operator: " in result.stdout
    assert "tokens/s" in result.stdout
    result = run(llama, "--rows", "512", "--draws", "1", "--gb-per-s", "100000", "--tflops", "0.001")
    assert "set by compute" in result.stdout
    assert "time bound" not in run(llama).stdout


def test_a_step_without_draws_and_a_model_with_learned_positions(tmp_path: Path) -> None:
    result = run(write(tmp_path / "gpt2", GPT2), "--rows", "16", "--draws", "0", "--context", "32")
    assert result.exit_code == 0, result.output
    assert "a step of 16 rows (tokens) of 1 sequence that is 32 tokens long after it; 0 tokens drawn" in result.stdout
    assert "layer 0 (layer 1 the same)" in result.stdout
    assert len(rows_of(result.stdout, "embedding")) == 2


def test_the_drawing_has_a_box_for_each_operator(llama: str, tmp_path: Path) -> None:
    file = tmp_path / "program.svg"
    result = run(llama, "--svg", str(file))
    assert result.stdout.splitlines()[-1] == f"drawn: {file}"
    texts = [element.text or "" for element in ElementTree.parse(file).iter() if element.tag.endswith("}text")]
    kinds = [text.split(" · ")[0] for text in texts]
    assert kinds.count("linear") == 8
    assert kinds.count("paged_attention") == 1
    assert {"token_ids", "positions", "hidden", "KV blocks", "layer 0 (layers 1–3 the same)"} <= set(texts)


def test_a_configured_name_and_what_is_said_of_others(llama: str, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"models: [{{name: small, source: {llama}}}, {{name: gone, source: {tmp_path}/none.gguf}}]\n")
    assert run("small", "-f", str(cluster)).stdout == run(llama).stdout
    for arguments, words in {
        ("gone", "-f", str(cluster)): "none.gguf does not exist; run `treadle models pull`",
        ("other", "-f", str(cluster)): "'other' is no configured model (small, gone), and no file or directory",
        (str(cluster),): "no readable GGUF file",
        (str(tmp_path),): "holds no config.json",
        (llama, "--rows", "2", "--draws", "3"): "3 draws need 3 rows at least",
        (llama, "--rows", "9", "--draws", "1", "--context", "8"): "8 tokens cannot have 9 rows",
        (llama, "--context", "4096"): "context of 2048 tokens; --context is 4096",
        (llama, "--tflops", "1"): "give both or none",
        (
            llama,
            "--passes",
            "fuse,fold",
        ): "'fold' is no pass; there are early-draws, fuse, offload, offload-ahead, polls, split=N, tp=N, with N",
        (llama, "--passes", "split=0"): "'split=0' is no pass",
        (llama, "--passes", "tp=3"): "2 heads of keys and values do not divide among 3 devices",
        (llama, "--passes", "fuse,tp=2"): "tensor_parallel comes before other passes",
        (llama, "--passes", "tp=2", "--tflops", "1", "--gb-per-s", "1"): "say also --wire-gb-per-s",
        (llama, "--svg", str(tmp_path / "none" / "a.svg")): "a.svg cannot be written: No such file or directory",
    }.items():
        result = run(*arguments)
        assert (result.exit_code, words in result.stderr) == (2, True), result.output


def test_passes_change_the_program_before_it_is_shown(llama: str, tmp_path: Path) -> None:
    file = tmp_path / "program.svg"
    result = run(llama, "--passes", "fuse, split=2,polls", "--rows", "4", "--svg", str(file))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].startswith("a step of 4 rows")
    assert lines[2].startswith("after fuse, split=2,polls: ")
    assert "layer 0 (layers 1–3 the same)" in result.stdout
    names = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert [name for name in names if name.startswith(("linear_add", "gated", "rope_write"))] == [
        "rope_write_kv",
        *["linear_add"] * 2,
        *["gated_linear"] * 2,
        *["linear_add"] * 2,
    ]
    (first, second) = rows_of(result.stdout, "paged_attention")
    names = [" ".join(row[:3]) for row in (first, second)]
    assert names == ["paged_attention (all 0–1/2)", "paged_attention (all 1/2–1)"]
    texts = [element.text or "" for element in ElementTree.parse(file).iter() if element.tag.endswith("}text")]
    drawn = {"llama after fuse, split=2,polls", "poll", "paged_attention (all 1/2–1)", "q_k_v", "KV blocks"}
    assert drawn | {"serve what waits for the device, if anything does"} <= set(texts)


def test_the_last_layer_goes_on_with_the_rows_that_draw(llama: str) -> None:
    result = run(llama, "--passes", "early-draws", "--rows", "8", "--draws", "1")
    lines = result.stdout.splitlines()
    titles = [line.strip() for line in lines if line.startswith(("before", "layer", "after the"))]
    assert titles == ["before the layers", "layer 0 (layers 1–2 the same)", "layer 3", "after the layers"]
    selected = [row[1:5] for row in rows_of(result.stdout, "select_draws")]
    assert selected == [["attended", "[8×64]", "attended_of_draws", "[1×64]"], ["hidden", "[8×64]", "drawn", "[1×64]"]]
    # seven of eight rows skip one layer's o, gate, up and down, and its norm, activation and sums:
    # 7 * (2 * (64 * 64 + 3 * 64 * 128) + 64 * 4 + 128 * 5 + 2 * 64) = 409 k
    assert lines[2] == "after early-draws: 6.29 MFLOP, 831 kB; before: 6.7 MFLOP, 853 kB"


def test_a_part_of_a_group_sends_to_the_others(llama: str) -> None:
    result = run(llama, "--passes", "tp=2,fuse", "--rows", "8")
    # of 8 rows of 64 numbers, two bytes each, half is sent to be summed, and half of the sums
    numbers = "branch [8×64] branch [8×64] network 256 2.05 k 0.0 0.1 1.02 k sum what"
    assert [numbers in " ".join(row) for row in rows_of(result.stdout, "all_reduce")] == [True, True]
    rates = ("--gb-per-s", "1000", "--tflops", "1000")
    assert "set by network" in run(llama, "--passes", "tp=2", *rates, "--wire-gb-per-s", "0.001").stdout


def test_every_kind_is_explained_and_numbers_are_short() -> None:
    assert WHAT_IT_DOES.keys() == set(OperatorKind)
    assert [short_number(value, "B") for value in (0, 1.5, 999.4, 999.6, 123_456, 2.5e9, 7e12)] == [
        "0 B",
        "1.5 B",
        "999 B",
        "1 kB",
        "123 kB",
        "2.5 GB",
        "7 TB",
    ]
    assert short_number(3e15, "FLOP") == "3 PFLOP"


def test_the_command_needs_no_tensors(llama: str) -> None:
    code = f"import sys; from cli.main import main; main(['program', {llama!r}], standalone_mode=False); "
    code += "sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)
