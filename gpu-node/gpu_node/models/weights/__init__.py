"""All weights of a model, whatever file they come from."""
