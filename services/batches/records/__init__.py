"""What is written of a batch: its states, its answers' lines, its tokens. Pure."""
