"""Launches that are recorded for sizes of steps, and replayed."""
