"""The global scheduler: which node holds which model, and in which order each node serves its groups."""
