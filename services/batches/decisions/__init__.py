"""Which request of a batch is sent next, and what becomes of it. Pure."""
