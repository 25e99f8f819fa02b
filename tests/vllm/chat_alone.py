r"""vLLM alone, asked as its manual says: chats with images, greedy. Runs in vLLM's environment, without Treadle.

    PYTHON tests/vllm/chat_alone.py MODEL_DIR KV_BYTES MAX_MODEL_LEN < JSON: {"max_tokens": …, "chats": [messages, …]}

Answers with a JSON list: of each chat the tokens of its prompt and of the answer.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Load, answer, end."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM's processes say is no answer
    from vllm import LLM, SamplingParams  # reads the environment

    model, kv_bytes, max_model_len = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    asked = json.load(sys.stdin)
    llm = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        kv_cache_memory_bytes=kv_bytes,
        max_model_len=max_model_len,
        max_num_seqs=8,
        disable_log_stats=True,
    )
    sampling = SamplingParams(max_tokens=asked["max_tokens"], temperature=0, ignore_eos=True, detokenize=False)
    done = [llm.chat(chat, sampling, use_tqdm=False)[0] for chat in asked["chats"]]
    told = [{"prompt": list(one.prompt_token_ids), "tokens": list(one.outputs[0].token_ids)} for one in done]
    answers.write(json.dumps(told))


if __name__ == "__main__":  # its processes import this file
    main()
