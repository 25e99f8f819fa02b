"""Which tokens of which requests are computed next: admission, preemption, resumption, and what a step brought."""
