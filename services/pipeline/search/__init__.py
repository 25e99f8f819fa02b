"""The search for the quickest pipeline, and what none can be quicker than."""
