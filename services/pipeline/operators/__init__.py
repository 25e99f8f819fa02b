"""The operators of a layer: their times alone, and what depends on what."""
