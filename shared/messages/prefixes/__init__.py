"""Beginnings of prompts by name, and where their KV is."""
