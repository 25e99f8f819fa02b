"""NanoFlow (OSDI'25): what a step costs by resource, and how long one takes that is the schedule of a pipeline."""
