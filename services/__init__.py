"""Decision services: queue manager, scheduler, KV manager; and the simulator that drives their cores."""

from shared.processes.start import begin

begin()
