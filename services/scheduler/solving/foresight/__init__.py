"""Groups that are not in the queue yet: who will come, who will decode, and how many nodes that takes."""
