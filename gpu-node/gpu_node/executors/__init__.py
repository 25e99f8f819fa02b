"""Execution of a step's plan. Importing this package, `executor` or `predicted` does not import torch."""
