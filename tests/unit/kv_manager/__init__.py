"""The KV manager: memory of the nodes, by their reports."""
