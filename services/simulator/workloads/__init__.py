"""What is asked of a simulated cluster: the paper's workloads, made up, and traces from files."""
