"""Redis: streams, scripts, roles, and what is done when it is away."""
