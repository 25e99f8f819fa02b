"""Pipelines of a model, as files."""
