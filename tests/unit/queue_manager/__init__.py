"""The queue manager: groups, virtual queues, and the fold over whatever the inbox holds."""
