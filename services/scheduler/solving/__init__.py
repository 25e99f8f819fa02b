"""The search for the cheapest order: an instance, its cost, exact and greedy answers, and what time allows."""
