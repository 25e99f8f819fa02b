"""What clients send: files, lines, and requests that come with their batch."""
