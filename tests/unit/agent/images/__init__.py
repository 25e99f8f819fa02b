"""Images between nodes, as far as no other node is needed."""
