"""How large everything is, for vLLM behind Treadle and for vLLM alone; imports nothing, in whatever environment."""

KV_BYTES = 96 << 20
MAX_MODEL_LEN = 512
STEP_TOKENS = 256
