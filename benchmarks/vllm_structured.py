"""vLLM asked what structured_output.py asks our engine. Runs in the peer's environment, started by that script.

    PEER/bin/python benchmarks/vllm_structured.py MODEL_DIR MAX_MODEL_LEN MAX_NUM_SEQS

Prints a JSON line when the model is loaded. Then, for each line on stdin with prompts, a schema or null for each, and a
number of tokens: one with the seconds from the call to the last token, how many tokens each had, and the backends that
vLLM chose for the schemas. Ends with stdin. What vLLM prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

KV_CACHE_GIB = "1"  # the least; 32 requests of 128 tokens need a tenth


def answer(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Run one batch."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    samplings = [
        SamplingParams(
            max_tokens=asked["num_tokens"],
            temperature=0,
            ignore_eos=True,
            detokenize=False,  # nor does our engine: its gateway does
            structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
        )
        for schema in asked["schemas"]
    ]
    prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
    started_s = time.perf_counter()
    outputs = llm.generate(prompts, samplings, use_tqdm=False)
    return {
        "seconds": time.perf_counter() - started_s,
        "num_tokens": [len(output.outputs[0].token_ids) for output in outputs],
        "backends": sorted({one.structured_outputs._backend for one in samplings if one.structured_outputs}),
    }


def main() -> None:
    """Load, then answer."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = KV_CACHE_GIB
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is a directory; nothing has to be asked for
    import vllm  # reads the environment

    llm = vllm.LLM(
        sys.argv[1],
        dtype="bfloat16",
        max_model_len=int(sys.argv[2]),
        max_num_seqs=int(sys.argv[3]),
        disable_log_stats=True,
    )
    print(json.dumps({"vllm": vllm.__version__}), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(llm, json.loads(line))), file=answers)


if __name__ == "__main__":  # its workers import this file
    main()
