"""Judges a history. Pure: the same records give the same verdict, wherever they come from."""
