"""Weights that nobody trained."""
