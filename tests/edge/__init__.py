"""The clients' port against everything that its own document allows and does not allow: `python -m tests.edge`."""
