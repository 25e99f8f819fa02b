"""A small model as a directory with adapters beside it, those merged by `transformers`, and what is asked of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import Command, RunAttempt, StepReport
from shared.messages.requests.payload import Payload
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.made_models import VOCABULARY, write_plain
from tests.vllm.nodes import request

NAMES = ("", "legal", "rhymes")
"""Of the model itself, and of its adapters."""
BLOCK_TOKENS = 128
MAX_MODEL_LEN = 512


class Odd(torch.nn.Module):
    """A layer with a module that no Llama has."""

    def __init__(self) -> None:
        super().__init__()
        self.r_proj = torch.nn.Linear(256, 256)


@dataclass(frozen=True)
class Adapted:
    """A model as a directory, its adapters, and all three as `transformers` has them merged."""

    folder: Path
    merged: dict[str, Any]

    def config(self, python: Path, folder: Path, num_ranks: int = 1) -> Path:
        """One node, and beside the model two whose last adapter is made for another."""
        source, adapters = (
            str(self.folder / "plain"),
            [{"name": name, "source": str(self.folder / name)} for name in NAMES[1:]],
        )
        models = [{"name": "smol", "source": source, "max_model_len": MAX_MODEL_LEN, "adapters": adapters}]
        for name in ("narrow", "odd"):
            right = [one | {"name": f"{name}-{one['name']}"} for one in adapters]
            wrong = {"name": name, "source": str(self.folder / name)}
            models.append({"name": f"smol-{name}", "source": source, "max_model_len": 64, "adapters": [*right, wrong]})
        vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
        node = {"name": "node-0", "engine": "vllm", "tensor_parallel": num_ranks, "vllm": vllm}
        options = {"kv_cache_bytes": 16 << 20, "max_num_seqs": 16, "step_tokens": 64}
        path = folder / "treadle.yaml"
        path.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": options}))
        return path


def make_adapted(folder: Path) -> Adapted:
    """Written into a folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    plain = LlamaForCausalLM.from_pretrained(write_plain(folder / "plain"), dtype=torch.float32)
    merged: dict[str, Any] = {"": plain}
    merged["legal"] = save_adapter(plain, folder / "legal", ALL, rank=6, seed=1, rank_pattern={"down_proj": 12})
    merged["rhymes"] = save_adapter(plain, folder / "rhymes", ALL[:4], rank=3, seed=2, use_rslora=True)
    shape = json.loads((folder / "plain" / "config.json").read_text()) | {"hidden_size": 128}
    save_adapter(LlamaForCausalLM(LlamaConfig(**shape)), folder / "narrow", ALL, seed=3)
    odd = torch.nn.ModuleDict({"model": torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Odd()])})})
    save_adapter(odd, folder / "odd", ["r_proj"], seed=4)
    return Adapted(folder, merged)


def text(seed: int, num_tokens: int) -> list[int]:
    return [(seed * 131 + place * place * 7 + place) % (VOCABULARY - 3) + 3 for place in range(num_tokens)]


def asked(adapter: str, prompt: list[int], num_tokens: int = 12, name: str = "", **more: Any) -> Payload:
    return replace(request(name or f"of {adapter}", prompt, num_tokens, **more), adapter=adapter)


class Heard:
    """Tokens by request, and the state behind them."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.tokens: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.stats: EngineStats | None = None

    def next(self) -> Any:
        event = self._agent.next()
        if isinstance(event, StepReport):
            self.stats = event.stats
            for chunk in event.chunks:
                assert chunk.error == ""
                self.tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
                if chunk.is_last:
                    self.ended.add(chunk.request_id)
        return event

    @property
    def counts(self) -> Counts:
        assert self.stats is not None
        return self.stats.counts

    def to_the_end(self, *payloads: Payload) -> list[list[int]]:
        commands: list[Command] = [RunAttempt(one) for one in payloads]
        self._agent.send(*commands)
        names = [one.request_id for one in payloads]
        while not self.ended >= set(names):
            self.next()
        return [self.tokens[name] for name in names]
