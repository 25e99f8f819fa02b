"""Blocks of one model on devices: its own, and others that lend pages."""
