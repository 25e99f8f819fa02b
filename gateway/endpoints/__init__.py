"""The paths of the REST interface."""
