"""Operators that overlap."""
