r"""vLLM as its manual says, without Treadle, to compare with: loaded once, then asked. Runs in vLLM's environment.

    PYTHON -m gpu_node.vllm.installation.direct MODEL_DIR \
        '{"dtype": …, "kv_bytes": …, "max_num_seqs": …, "step_tokens": …, "num_threads": …, "max_model_len": …}'

Each line of stdin is a JSON object with ``prompts`` (lists of token ids) and ``max_tokens``; each answer a line with
``seconds`` and ``tokens``. Says ``ready`` when it has loaded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from gpu_node.vllm.installation.environment import preload


def main() -> None:
    """Load, say so, answer."""
    preload()  # vLLM at its best
    model, sizes = sys.argv[1], json.loads(sys.argv[2])
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(sizes["num_threads"]),
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM's processes say is no answer
    answer = _loaded(model, sizes)
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")


def _loaded(model: str, sizes: dict[str, Any]) -> Any:
    from vllm import LLM, SamplingParams  # reads the environment

    llm = LLM(
        model,
        dtype=sizes["dtype"],
        enforce_eager=True,
        kv_cache_memory_bytes=sizes["kv_bytes"],
        max_model_len=sizes["max_model_len"],
        max_num_batched_tokens=sizes["step_tokens"],
        max_num_seqs=sizes["max_num_seqs"],
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        sampling = SamplingParams(max_tokens=asked["max_tokens"], temperature=0, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
        started_s = time.perf_counter()
        done = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started_s
        return {"seconds": seconds, "tokens": [list(one.outputs[0].token_ids) for one in done]}

    return answer


if __name__ == "__main__":  # its processes import this file
    main()
