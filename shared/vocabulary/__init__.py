"""What tokens of a model are, by its files: texts, kinds and roles; for code that reads or writes text."""
