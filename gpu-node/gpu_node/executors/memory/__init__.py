"""Memory of an executor: host and device bytes, moves between them, and the largest step that fits."""
