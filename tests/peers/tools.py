"""The tools and how they are called, as their users would call them."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.environment import PEERS

NUM_REQUESTS = 8
NUM_STREAMS = 4
PROMPT_TOKENS = 8
OUTPUT_TOKENS = 8
TOOL_TIMEOUT_S = 300  # most of it is what they import

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Counts:
    """What a tool says of its run."""

    completed: int
    failed: int
    output_tokens: int


async def guidellm(url: str, tokenizer: Path, folder: Path, route: str) -> Counts:
    """``guidellm run`` against ``route``."""
    report = folder / "guidellm.json"
    await _run(
        "guidellm",
        "run",
        "--backend",
        f"kind=openai_http,target={url},request_format={route}",
        "--profile",
        f"kind=concurrent,streams={NUM_STREAMS}",
        "--constraint",
        f"kind=max_requests,count={NUM_REQUESTS}",
        "--tokenizer",
        f"kind=hf_auto,model={tokenizer}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        "--output",
        f"kind=json,path={report}",
        "--disable-console-interactive",
    )
    requests: dict[str, list[Any]] = json.loads(report.read_text())["benchmarks"][0]["requests"]
    done, failed = requests["successful"], requests["errored"]
    return Counts(len(done), len(failed), sum(one["output_metrics"]["text_tokens"] for one in done))


async def vllm_bench_serve(url: str, tokenizer: Path, folder: Path, *arguments: str) -> Counts:
    """``vllm bench serve``; it takes the first model that the server has."""
    report = folder / "vllm.json"
    await _run(
        "python",
        str(Path(__file__).with_name("vllm_bench_serve.py")),
        "--base-url",
        url,
        "--tokenizer",
        str(tokenizer),
        "--dataset-name",
        "random",
        "--random-input-len",
        str(PROMPT_TOKENS),
        "--random-output-len",
        str(OUTPUT_TOKENS),
        "--num-prompts",
        str(NUM_REQUESTS),
        "--max-concurrency",
        str(NUM_STREAMS),
        "--ignore-eos",
        "--save-result",
        "--result-dir",
        str(folder),
        "--result-filename",
        report.name,
        *arguments,
    )
    found = json.loads(report.read_text())
    return Counts(found["completed"], found["failed"], found["total_output_tokens"])


async def _run(program: str, *arguments: str) -> None:
    """`AssertionError` with what it wrote where it fails."""
    process = await asyncio.create_subprocess_exec(
        str(PEERS / "bin" / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | _OFFLINE,
    )
    try:
        async with asyncio.timeout(TOOL_TIMEOUT_S):
            written, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        written, _ = await process.communicate()
    assert process.returncode == 0, written.decode(errors="replace")[-4000:]
