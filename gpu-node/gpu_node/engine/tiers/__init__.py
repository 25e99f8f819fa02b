"""KV blocks on an SSD: the files, the thread that reads and writes them, and what an engine asks of it."""
