"""Nodes: what they hold, what they shall load, where groups are placed."""
