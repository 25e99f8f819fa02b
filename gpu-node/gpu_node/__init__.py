"""A GPU node: the agent that speaks to the cluster and the engine that computes."""

from shared.processes.start import begin

begin()
