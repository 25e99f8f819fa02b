"""The queue: request groups, virtual queues, and who is working on what."""
