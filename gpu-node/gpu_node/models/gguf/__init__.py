"""Models in GGUF files: configuration, names and quantised tensors."""
