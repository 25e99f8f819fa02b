"""What all calls that a model answers have in common, and the parts of their jobs."""
