"""Prompts that are texts or tokens, and completions of them."""
