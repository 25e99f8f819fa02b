"""A GPU node: the agent that speaks to the cluster and the engine that computes."""
