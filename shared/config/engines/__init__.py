"""What engines are told: models, and how they are run."""
