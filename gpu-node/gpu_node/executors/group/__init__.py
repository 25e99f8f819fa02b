"""Tensor parallelism: a program's share for each device of a group, and the processes that compute it."""
