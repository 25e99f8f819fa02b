"""What can be done to a cluster."""
