"""Responses in the background: taken from their clients, followed by one process at a time, shown as they come."""
