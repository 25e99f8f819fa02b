"""Functions that a model may call: how calls are written, read from its text, and made sure of."""
