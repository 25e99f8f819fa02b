"""Processes that share one port, and the parent that starts them again."""
