"""Nodes with vLLM: their configuration, their process, and who is left when it has gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from gpu_node.engine.process.protocol.protocol import EngineReady, StepReport
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import Chunk
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.vllm.sizes import KV_BYTES, MAX_MODEL_LEN, STEP_TOKENS

PYTHON_ENV = "TREADLE_VLLM_PYTHON"
EXPORTED_ENV = "TREADLE_VLLM_MODEL"
"""A directory that was exported before, so that a test alone begins at once."""
TIMEOUT_S = 300.0  # of one wait; a load takes half a minute where nothing else runs
GONE_S = 15.0


def exported(source: Path, folder: Path) -> Path:
    """A GGUF file as a directory in Hugging Face layout, made once."""
    if named := os.environ.get(EXPORTED_ENV):
        return Path(named)
    target = folder / "smol"
    command = [sys.executable, "-m", "gpu_node.models.hf.export", str(source), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def write_config(folder: Path, model: Path, python: Path) -> Path:
    """Three names for one model, of which two can stay at a time, and three that cannot be served.

    In float32: in bfloat16 sums hang so much on what is computed together that a draw of two runs may differ.
    """
    broken = folder / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "nobody", "architectures": ["NobodyForCausalLM"]}')
    odd = folder / "odd"
    odd.mkdir()
    values = json.loads((model / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(values | {"quantization_config": {"quant_method": "nobody-s"}}))
    models = [
        {"name": "smol", "source": str(model), "max_model_len": MAX_MODEL_LEN},
        {"name": "smol-b", "source": str(model), "max_model_len": 256},
        {"name": "smol-c", "source": str(model), "max_model_len": 256},
        {"name": "broken", "source": str(broken), "max_model_len": 64},
        {"name": "odd", "source": str(odd), "max_model_len": 64},
        {"name": "long", "source": str(model), "max_model_len": 8192},
    ]
    vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
    node = {"name": "node-0", "engine": "vllm", "vllm": vllm}
    options = {"kv_cache_bytes": 2 * KV_BYTES, "max_num_seqs": 16, "step_tokens": STEP_TOKENS, "host_models": 1}
    path = folder / "treadle.yaml"
    path.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": options}))
    return path


def write_plain_config(folder: Path, model: Path, python: Path, dtype: str) -> Path:
    """One node with vLLM as it comes, but for the type."""
    vllm = {"python": str(python), "kv": "host", "args": ["--dtype", dtype]}
    node = {"name": "node-0", "engine": "vllm", "vllm": vllm}
    path = folder / "plain.yaml"
    path.write_text(yaml.safe_dump(_one_model(model) | {"nodes": [node]}))
    return path


def write_our_config(folder: Path, model: Path) -> Path:
    """One node with our engine and the same model."""
    path = folder / "ours.yaml"
    path.write_text(yaml.safe_dump(_one_model(model) | {"nodes": [{"name": "node-0"}]}))
    return path


def _one_model(model: Path) -> dict[str, Any]:
    engine = {"kv_cache_bytes": KV_BYTES, "max_num_seqs": 16, "step_tokens": STEP_TOKENS}
    return {"models": [{"name": "smol", "source": str(model), "max_model_len": MAX_MODEL_LEN}], "engine": engine}


@contextmanager
def ready(config_path: Path, python: Path) -> Iterator[Agent]:
    """A process that is up, and its whole group gone afterwards."""
    with process_of(config_path, (str(python), "-m", "gpu_node.vllm"), TIMEOUT_S) as agent:
        told = agent.next()
        assert isinstance(told, EngineReady), told
        assert (told.device, told.engine, told.lacks) == ("vllm-cpu", "vllm", ["beam search"])
        yield agent
    assert left(agent.process.pid) == []


def members(group: int) -> list[psutil.Process]:
    """Who is in a process group, without those that have ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def shared_by(group: int) -> set[Path]:
    """Files in shared memory that members of a group have open as memory."""
    lines: list[str] = []
    for process in members(group):
        lines += Path("/proc", str(process.pid), "maps").read_text().splitlines()
    return {
        Path(line.split(maxsplit=5)[5]) for line in lines if " /dev/shm/" in line and not line.endswith("(deleted)")
    }


def left(group: int) -> list[str]:
    """Who is still there of a group that should have gone, some time after."""
    deadline = time.monotonic() + GONE_S
    while (found := members(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [" ".join(process.cmdline()) for process in found]


def request(
    name: str, prompt: Sequence[int], max_tokens: int, output: Sequence[int] = (), attempt: int = 0, **sampling: object
) -> Payload:
    """Greedy to the length unless said otherwise."""
    options = {"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True} | sampling
    outputs = [Output(list(output))] if output else []
    return Payload(name, attempt, "g", "smol", list(prompt), Sampling(**options), outputs)  # type: ignore[arg-type]


def chunks_until_end(agent: Agent, request_id: str) -> list[Chunk]:
    """Those of a request, up to its last."""
    found: list[Chunk] = []
    while not (found and found[-1].is_last):
        event = agent.next()
        assert isinstance(event, StepReport), event
        found += [chunk for chunk in event.chunks if chunk.request_id == request_id]
    return found


def tokens_of(chunks: Sequence[Chunk]) -> list[int]:
    """All of one choice, in order, none missing and none twice."""
    tokens: list[int] = []
    first = chunks[0].index
    for chunk in chunks:
        assert chunk.index == first + len(tokens)
        tokens += chunk.token_ids
    return tokens
