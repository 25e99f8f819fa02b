"""KV memory: where blocks lie, and pages that are lent."""
