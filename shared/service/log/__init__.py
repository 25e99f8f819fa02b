"""A service's inbox as its log: its time, its commits, and who may write it."""
