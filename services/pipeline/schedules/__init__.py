"""A pipeline as it is played: when each part of an operator runs."""
