"""One weight: how files hold it, as a tensor or an array, and as int8."""
