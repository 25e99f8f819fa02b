"""Images of requests from node to node: those that wait here to be fetched, and those that are fetched from others."""
