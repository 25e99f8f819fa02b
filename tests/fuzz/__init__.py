"""Fuzzing of all that reads bytes from outside: a room for each kind of bytes, with the oracle that judges it."""
