"""What a node tells of itself: metrics of agent and engine, and spans of requests."""
