"""Ways to find an order of groups: exact, greedy, by local search, by turns."""
