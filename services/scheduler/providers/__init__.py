"""Node providers: what makes the number of nodes of a pool the one that the scheduler wishes for."""
