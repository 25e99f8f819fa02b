"""Programs on the CPU device: lowered once, replayed each step."""
