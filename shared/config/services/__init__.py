"""Gateway, queue and batches, and what writes wait for."""
