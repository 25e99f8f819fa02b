"""Devices that are not there, in real time: steps last as predicted, tokens are drawn lengths of words."""
