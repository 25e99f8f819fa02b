"""The node agent: pulls requests from its virtual queue, feeds the engine, sends tokens to the gateways."""

from shared.processes.start import begin

begin()
