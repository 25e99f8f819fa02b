"""Attention on other devices."""
