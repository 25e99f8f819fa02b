"""Programs interpreted operation by operation with torch: the truth that devices are compared with."""
