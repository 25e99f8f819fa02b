"""Nodes: their devices, pools, phases, engines."""
