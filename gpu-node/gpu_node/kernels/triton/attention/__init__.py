"""Paged attention: prefill in tiles, decoding in splits, and the word that ends a wait."""
