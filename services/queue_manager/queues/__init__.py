"""Virtual queues: the order of groups at each node, and where a newcomer joins it (SoCC'24 §4)."""
