"""The compiled library: how it is built and called, and what it reads."""
