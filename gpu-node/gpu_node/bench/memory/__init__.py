"""Memory pressure measured: policies beside one another, each with the same requests in too few blocks."""
