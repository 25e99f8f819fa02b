"""NanoFlow (OSDI'25): the search for a pipeline whose operators overlap."""
