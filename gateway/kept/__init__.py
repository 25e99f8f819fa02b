"""What gateways keep in Redis for one another, so that each can go on where another one ended."""
