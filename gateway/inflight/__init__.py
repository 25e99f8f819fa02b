"""Requests on their way: the job, what is sent for it, and what comes back from Redis."""
