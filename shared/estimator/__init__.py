"""The waiting-time estimator: formulas of QLM (SoCC'24 §5) and what they were extended by, without any state."""
