"""What a model thinks before it answers, told apart from its answer."""
