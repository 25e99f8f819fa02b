"""`treadle config`: check and show configurations."""
