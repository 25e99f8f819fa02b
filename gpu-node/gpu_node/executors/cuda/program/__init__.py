"""Programs on a CUDA device: lowered, recorded as graphs for sizes of steps, and replayed."""
