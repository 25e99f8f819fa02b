"""What there is, and what waits."""
