"""What lies on the disk: files of clients, batches, and answers as they come."""
