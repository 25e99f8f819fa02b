"""What both sides say to each other, and what vLLM calls its own."""
