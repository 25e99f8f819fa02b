"""vLLM asked what `treadle bench engine` asks our engine. Runs in the peer's environment, started by engine_vs_vllm.py.

    PEER/bin/python benchmarks/vllm_points.py MODEL_DIR POINT

Prints one JSON line: seconds from the call with all requests to the last token, and output tokens a second.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

KV_CACHE_GIB = "4"  # as many as ours has

WARM_UP = (2, 8, 4)
MAX_MODEL_LEN = 2048


def main() -> None:
    """Load, warm up, measure."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = KV_CACHE_GIB
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is a directory; nothing has to be asked for
    from vllm import LLM, SamplingParams  # reads the environment

    num_requests, num_in, num_out = map(int, sys.argv[2].split("x"))
    llm = LLM(
        sys.argv[1],
        dtype="bfloat16",
        max_model_len=max(MAX_MODEL_LEN, num_in + num_out),
        max_num_seqs=max(num_requests, WARM_UP[0]),
        disable_log_stats=True,
    )
    vocab_size = llm.llm_engine.model_config.get_vocab_size()
    numbers = random.Random(0)

    def run(num_requests: int, num_in: int, num_out: int) -> float:
        prompts = [
            {"prompt_token_ids": [numbers.randrange(vocab_size) for _ in range(num_in)]} for _ in range(num_requests)
        ]
        sampling = SamplingParams(max_tokens=num_out, temperature=0, ignore_eos=True)
        started_s = time.perf_counter()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started_s
        assert all(len(answer.outputs[0].token_ids) == num_out for answer in answers)
        return seconds

    run(*WARM_UP)
    seconds = run(num_requests, num_in, num_out)
    print(json.dumps({"seconds": seconds, "output_tokens_per_s": num_requests * num_out / seconds}), flush=True)


if __name__ == "__main__":  # its workers import this file
    main()
