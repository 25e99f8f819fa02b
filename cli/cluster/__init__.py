"""The cluster on this machine: up, down, status, queue and logs."""
