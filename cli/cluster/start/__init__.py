"""From nothing to a cluster that serves, and what is shown meanwhile."""
