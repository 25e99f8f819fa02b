"""Requests that gave up their place: images of their KV, here or on the way to another node."""
