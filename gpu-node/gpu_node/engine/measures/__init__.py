"""What the engine measures: counts, throughput, device time, and what a step costs (least squares)."""
