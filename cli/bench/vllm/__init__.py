"""A node with vLLM beside vLLM alone."""
