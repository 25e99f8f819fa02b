"""NanoFlow's cost model: what a step takes of compute, memory and network."""
