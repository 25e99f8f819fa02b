"""What a process answers to operators: health, metrics, status."""
