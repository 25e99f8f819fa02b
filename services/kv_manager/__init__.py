"""The map of the cluster's KV cache: how much room each node has, and what is used."""
