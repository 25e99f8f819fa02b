"""Images from node to node over real sockets: what goes over, and each way in which it may not."""
