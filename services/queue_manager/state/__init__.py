"""What the queue manager knows: requests, nodes and gateways, and sums over them that are kept as they change."""
