"""What the gateway measures of itself, of the queue and of Redis."""
