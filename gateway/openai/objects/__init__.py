"""What all objects of a request have in common."""
