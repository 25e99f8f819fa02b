"""Calls in flight: what was asked for, its requests, and how their news reach the handler."""
