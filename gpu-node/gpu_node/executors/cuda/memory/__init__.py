"""Memory of a CUDA device: weights, blocks of KV, pinned rings and the lanes that copy."""
