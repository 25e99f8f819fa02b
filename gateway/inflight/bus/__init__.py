"""The gateway's side of Redis: what is sent for requests, what comes back, and its standing in the cluster."""
