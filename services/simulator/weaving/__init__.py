"""Two decode-only nodes of which one does attention for the other: Weaver's evaluation (ATC'25, §5), predicted."""
