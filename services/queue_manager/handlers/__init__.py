"""What each message does to the queue: requests, nodes, gateways, evictions, inventories."""
