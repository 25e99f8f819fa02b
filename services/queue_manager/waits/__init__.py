"""Predicted waiting times: QLM's estimator, applied to the queue as it stands (SoCC'24 §5)."""
