"""Who is in the batch, and what a step has of each."""
