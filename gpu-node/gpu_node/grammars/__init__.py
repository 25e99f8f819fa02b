"""Languages that outputs are held to, over the tokens of a model: compiled beside the engine's steps, by llguidance."""
