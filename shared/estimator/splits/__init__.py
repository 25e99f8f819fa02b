"""What it costs that so many nodes prefill, so many decode, or all do both."""
