"""What agent and engine process say to each other, and how it becomes bytes."""
