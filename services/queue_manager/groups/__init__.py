"""Request groups: requests of one model and promise, and what they weigh together (SoCC'24 §4)."""
