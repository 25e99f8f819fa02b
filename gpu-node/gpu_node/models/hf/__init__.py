"""Models in Hugging Face folders: configuration, names and safetensors."""
