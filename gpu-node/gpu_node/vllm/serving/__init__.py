"""The engine process: requests and steps on our side of vLLM."""
