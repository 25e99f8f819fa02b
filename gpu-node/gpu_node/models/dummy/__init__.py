"""Weights that were not trained."""
