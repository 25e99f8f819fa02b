"""Operators as launches on a device."""
