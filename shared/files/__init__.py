"""Files of models and lengths: which model a file holds, how large it is, and whether it is whole."""
