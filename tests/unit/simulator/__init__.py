"""The simulator: one clock, one order, and the same again from the same inputs."""
