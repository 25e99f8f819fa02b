"""From a file to values, and all that is wrong with them."""
