"""Which sequences are in the batch, and what a step has of each."""
