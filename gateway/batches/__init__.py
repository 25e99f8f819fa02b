"""The gateway's side of batches: it asks the batch service for its clients, and takes the requests that it sends."""
