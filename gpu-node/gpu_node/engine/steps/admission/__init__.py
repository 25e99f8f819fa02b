"""Who begins, who is preempted, and what memory that takes."""
