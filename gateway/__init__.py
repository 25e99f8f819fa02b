"""The gateway: an OpenAI-compatible REST front that turns HTTP requests into queue entries and tokens into text."""

from shared.processes.start import begin

begin()
