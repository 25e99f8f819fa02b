"""The vLLM that is installed, its environment and its processes."""
