"""What crosses between processes, as frozen messages, and how it becomes bytes."""
