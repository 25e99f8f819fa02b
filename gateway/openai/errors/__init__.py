"""Refusals, each with its status, type and code."""
