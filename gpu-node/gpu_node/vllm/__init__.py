"""vLLM as the engine of a node, behind the protocol between agent and engine process."""
