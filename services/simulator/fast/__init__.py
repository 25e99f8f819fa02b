"""An engine for long simulations: lengths instead of tokens, and a jump over steps in which nothing changes."""
