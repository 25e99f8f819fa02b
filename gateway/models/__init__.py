"""What the gateway knows of a model: its tokenizer, vocabulary and chat template, from GGUF and Hugging Face files."""
