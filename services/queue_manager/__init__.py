"""The queue: request groups, virtual queues, and which node works on what."""
