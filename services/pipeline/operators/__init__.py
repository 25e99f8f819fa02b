"""The operators of a layer: lanes, times alone, and how they slow one another."""
