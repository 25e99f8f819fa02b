"""Plans of the scheduler: when one is asked for, what is left of it, and what is changed between two of them."""
