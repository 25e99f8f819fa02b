"""What calls are made of, read character by character: values, literals, words."""
