"""The node agent: what it pulls, when it swaps, what it publishes."""
