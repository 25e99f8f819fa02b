"""What the layers of several families share."""
