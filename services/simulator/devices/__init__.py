"""Devices that are not there: what a step, a swap and a byte of KV cost on each kind."""
