"""vLLM asked for what embeddings.py asks our engine. Runs in the peer's environment.

    PEER/bin/python benchmarks/vllm_embeddings.py MODEL_DIR POINTS

Prints one JSON line: seconds by point, and the embedding of `TEXT`, of length 1.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

KV_CACHE_GIB = "1"
MAX_MODEL_LEN = 1024
TEXT = list(range(100, 140))  # token ids


def main() -> None:
    """Load, warm up, measure."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = KV_CACHE_GIB
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is a directory; nothing has to be asked for
    from vllm import LLM  # reads the environment

    points = [tuple(map(int, point.split("x"))) for point in sys.argv[2].split(",")]
    llm = LLM(
        sys.argv[1],
        runner="pooling",
        dtype="bfloat16",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=max(num_texts for num_texts, _ in points),
        disable_log_stats=True,
    )
    vocab_size = llm.llm_engine.model_config.get_vocab_size()
    numbers = random.Random(time.time_ns())  # no text has been seen before

    def seconds(num_texts: int, num_tokens: int) -> float:
        texts = [
            {"prompt_token_ids": [numbers.randrange(vocab_size) for _ in range(num_tokens)]} for _ in range(num_texts)
        ]
        started_s = time.perf_counter()
        answers = llm.embed(texts, use_tqdm=False)
        taken_s = time.perf_counter() - started_s
        assert len(answers) == num_texts
        return taken_s

    seconds(2, 8)
    (answer,) = llm.embed([{"prompt_token_ids": TEXT}], use_tqdm=False)
    found = {f"{num_texts}x{num_tokens}": seconds(num_texts, num_tokens) for num_texts, num_tokens in points}
    print(json.dumps({"seconds": found, "embedding": list(answer.outputs.embedding)}), flush=True)


if __name__ == "__main__":  # its workers import this file
    main()
