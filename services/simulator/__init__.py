"""The simulator: the live cores in virtual time, over an in-memory bus."""
