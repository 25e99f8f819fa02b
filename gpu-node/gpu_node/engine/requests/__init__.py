"""A request inside the engine: its tokens, its choices and beams, and its image when it is evicted."""
