"""Model families as builders of programs."""
