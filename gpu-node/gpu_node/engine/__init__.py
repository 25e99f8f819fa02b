"""Bookkeeping of the engine: which tokens of which sequences are computed next, and in which blocks. No tensors."""

from shared.processes.start import begin

begin()
