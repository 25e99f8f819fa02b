"""The agent as a process: the engine it starts and watches, its place on the bus, and each epoch of its life."""
