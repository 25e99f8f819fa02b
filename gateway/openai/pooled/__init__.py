"""Embeddings and scores: what is asked and answered."""
