"""What tokens of a model are, by its files: texts, kinds and roles; for whoever reads or writes text."""
