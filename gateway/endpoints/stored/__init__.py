"""What outlives its call: files, batches, kept answers."""
