"""KV on its way out of vLLM and into it."""
