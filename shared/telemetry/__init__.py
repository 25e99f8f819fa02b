"""Logs, traces and labels of metrics, all of them bounded."""
