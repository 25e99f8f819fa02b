"""Links of a CUDA device to engines of other processes (Weaver, ATC'25): windows, their two ends, and what moves."""
