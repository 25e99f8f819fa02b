"""Batches of requests in files, each answered within its window: the service that has them and sends them."""
