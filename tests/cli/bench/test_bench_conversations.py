"""`treadle bench conversations` on a tiny model with large keys and values: what is counted is exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from gpu_node.bench.conversations.workload import (
    ANSWER_TOKENS,
    FIRST_MESSAGE_TOKENS,
    MESSAGE_TOKENS,
    QUICK,
    history_tokens,
)
from tests.gpu_node.models.test_families_models import save

BLOCK_SIZE = 16
PROMPTS = [history_tokens(turn + 1) - ANSWER_TOKENS for turn in range(QUICK.num_turns)]
FOUND = [(history_tokens(turn) - 1) // BLOCK_SIZE * BLOCK_SIZE if turn else 0 for turn in range(QUICK.num_turns)]
"""Of each prompt, all full blocks: the last token of an answer is never computed."""


def test_prompts_are_all_that_was_said() -> None:
    assert PROMPTS[:3] == [FIRST_MESSAGE_TOKENS, FIRST_MESSAGE_TOKENS + ANSWER_TOKENS + MESSAGE_TOKENS, 60]
    assert FOUND[:4] == [0, 16, 32, 48]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("conversations")
    sizes = {"num_hidden_layers": 6, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 512}
    save("llama", path, **sizes)
    return str(path)


@pytest.mark.slow
def test_every_row_says_what_was_computed_and_where_the_rest_was(model: str, tmp_path: Path) -> None:
    options = ["--quick", "--json", "--threads", "1", "--model", model, "--folder", str(tmp_path)]
    result = CliRunner().invoke(main, ["bench", "conversations", *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    off, host, host_ssd, cold = report["rows"]
    assert [row["row"] for row in report["rows"]] == ["off", "host", "host_ssd", "ssd_cold"]
    assert all(row["tokens_equal"] for row in report["rows"])
    num_prompt_tokens = QUICK.num_users * sum(PROMPTS)
    assert [row["prompt_tokens"] for row in (off, host, host_ssd)] == [num_prompt_tokens] * 3
    assert off["hit_rate"] == {"device": pytest.approx(0, abs=0.05), "host": 0.0, "ssd": 0.0}
    assert host["prefill_tokens"] == num_prompt_tokens - QUICK.num_users * sum(FOUND)
    assert host["hit_rate"]["ssd"] == 0.0
    assert cold["prompt_tokens"] == QUICK.num_users * PROMPTS[-1]
    if not host_ssd["num_unwritten"]:
        assert host_ssd["prefill_tokens"] == host["prefill_tokens"]
        assert cold["prefill_tokens"] == cold["prompt_tokens"] - QUICK.num_users * FOUND[-1]
    assert host_ssd["hit_rate"]["ssd"] > 0
    assert [one["row"] for one in report["nothing_returns"]] == ["off", "host", "host_ssd"]
    assert all(len(one["seconds"]) == QUICK.num_repeats for one in report["nothing_returns"])
    summary = report["summary"]
    assert summary["host_prefill_vs_off"] == pytest.approx(host["prefill_tokens"] / off["prefill_tokens"])
    assert summary["tokens_equal"] is True
    two_nodes = report["two_nodes"]
    assert two_nodes["num_requests"] == 400
    found = {name: rate["all"] for name, rate in two_nodes["hit_rate"].items()}
    assert found["warm"] > found["blind"]
    assert summary["two_nodes_hits_vs_blind"] == pytest.approx(found["warm"] / found["blind"])
    assert summary["two_nodes_promises_kept_vs_blind"] >= 0
    assert list(tmp_path.iterdir()) == [], "nothing is left on the SSD"
