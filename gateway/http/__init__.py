"""Connections and bodies: limits, time-outs, and refusals before a request costs anything."""
