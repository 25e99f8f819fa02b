"""The scheduler: what a queue costs, and in which order groups are placed."""
