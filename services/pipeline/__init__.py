"""NanoFlow (OSDI'25): what a step costs by resource, and the search for a pipeline whose operators overlap."""
