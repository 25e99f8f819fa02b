"""One call as each family writes it, read character by character and made a JSON object."""
