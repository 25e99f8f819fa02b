"""What a node knows of models and adapters in this epoch."""
