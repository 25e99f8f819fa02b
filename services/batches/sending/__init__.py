"""Batches that run: their requests on the way to gateways, and their answers on the way back."""
