"""Logs of the cluster's processes, as one stream by time."""
