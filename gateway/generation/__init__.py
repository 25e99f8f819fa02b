"""From tokens to answers: choices, stop strings, log probabilities, and text whose bytes are complete."""
