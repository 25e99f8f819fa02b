"""Load on a running cluster, as clients make it."""
