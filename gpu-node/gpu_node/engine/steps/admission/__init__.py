"""Which requests begin, which are preempted, and what memory that takes."""
