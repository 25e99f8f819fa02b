"""Pages that an engine lends to others, and those that others lend to it."""
