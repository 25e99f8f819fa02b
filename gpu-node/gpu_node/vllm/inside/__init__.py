"""What runs inside of vLLM's own core."""
