"""From logits to tokens: penalties, sampling, random numbers without a state, and tokens still to be read."""
