"""What is made of a text instead of an answer: embeddings, scores."""
