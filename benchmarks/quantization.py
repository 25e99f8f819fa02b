"""What the types of the weights cost in accuracy: perplexity of a fixed text, and how often the likeliest token agrees.

Teacher forcing: the model reads the text, and each token is looked up in the logits of the tokens before it. float32 is
the reference executor, bfloat16 and int8 are the CPU device. Prints one JSON line each.

    python benchmarks/quantization.py --threads 2
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import torch

from gateway.models.gguf_model import read_gguf
from gpu_node.engine.border.plan import Draw, ScheduledSequence
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Sampling

TEXT = Path(__file__).parent / "data" / "prose.txt"
CHUNK_TOKENS = 64
GREEDY = Sampling(max_tokens=1, temperature=0.0)


def text_logits(executor: CpuExecutor | ReferenceExecutor, token_ids: list[int], block_size: int) -> torch.Tensor:
    """Logits after each token, float32 [tokens, vocabulary].

    Only the last row of a sequence draws, so each token goes in as a sequence of its own over the same blocks: a step
    writes the keys and values of all its rows before any row looks at them.
    """
    table = tuple(range(-(-len(token_ids) // block_size)))
    parts = [
        ScheduledSequence(position, (token,), position, table, (Draw(position, GREEDY, 0),))
        for position, token in enumerate(token_ids)
    ]
    with torch.inference_mode():
        chunks = [
            torch.tensor(executor.logits(parts[first : first + CHUNK_TOKENS]))
            for first in range(0, len(parts), CHUNK_TOKENS)
        ]
    return torch.cat(chunks)


def main() -> None:
    """Measure each type beside float32."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    options = EngineOptions()
    spec = ClusterConfig().models[0]
    token_ids = read_gguf(checked_path(spec)).tokenizer.encode(TEXT.read_text())
    runs: list[tuple[str, CpuExecutor | ReferenceExecutor, ModelSpec]] = [
        ("float32", ReferenceExecutor(options), spec),
        ("bfloat16", CpuExecutor(options, arguments.threads), spec),
        ("int8", CpuExecutor(options, arguments.threads), replace(spec, weights="int8")),
    ]
    truth: torch.Tensor | None = None
    for name, executor, model in runs:
        executor.load_model(model)
        logits = text_logits(executor, token_ids, options.block_size)[:-1]
        truth = logits if truth is None else truth
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(token_ids[1:]))
        line = {
            "weights": name,
            "tokens": len(logits),
            "perplexity": round(math.exp(float(loss)), 4),
            "greedy_agreement": round(float((logits.argmax(-1) == truth.argmax(-1)).float().mean()), 4),
        }
        print(json.dumps(line), flush=True)
        if isinstance(executor, CpuExecutor):
            executor.close()


if __name__ == "__main__":
    main()
