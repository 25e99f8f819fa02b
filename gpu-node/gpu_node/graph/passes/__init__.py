"""Passes: program → program, each pure and of use alone. What they share is `draft`."""
