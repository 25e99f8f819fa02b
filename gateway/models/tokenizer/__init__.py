"""Text to token ids, and the parts of that."""
