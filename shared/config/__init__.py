"""The configuration: its sections, where it is read from, and every problem in it at once."""
