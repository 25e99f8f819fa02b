"""What the engine asks of an executor: the plan of a step, the model's limits, and the protocol."""
