"""vLLM without Treadle, for vllm_node.py: loaded once, then asked point by point. Runs in vLLM's environment.

    PYTHON benchmarks/vllm_direct.py MODEL_DIR KV_BYTES MAX_NUM_SEQS STEP_TOKENS NUM_THREADS

Each line of stdin is a JSON object with prompts (lists of token ids) and max_tokens; each answer a line with seconds
and tokens.
"""

from __future__ import annotations

import json
import os
import sys
import time

MAX_MODEL_LEN = 2048


def main() -> None:
    """Load, say so, answer."""
    model, kv_bytes, max_num_seqs, step_tokens, num_threads = sys.argv[1:]
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": num_threads,
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    from vllm import LLM, SamplingParams  # reads the environment

    llm = LLM(
        model,
        enforce_eager=True,
        kv_cache_memory_bytes=int(kv_bytes),
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=int(step_tokens),
        max_num_seqs=int(max_num_seqs),
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )
    sys.stdout.write("\nready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        sampling = SamplingParams(max_tokens=asked["max_tokens"], temperature=0, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
        started_s = time.perf_counter()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started_s
        tokens = [list(answer.outputs[0].token_ids) for answer in answers]
        sys.stdout.write(json.dumps({"seconds": seconds, "tokens": tokens}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":  # its processes import this file
    main()
