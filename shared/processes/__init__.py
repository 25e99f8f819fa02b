"""Processes of this machine: how they are started, found again, asked and ended."""
