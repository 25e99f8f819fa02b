"""Paged KV: blocks, the pool and the arena that they come from, shared prefixes, and how many will be needed."""
