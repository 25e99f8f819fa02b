"""What gateways, the queue manager and the KV manager are told."""
