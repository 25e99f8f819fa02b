"""The processes of a cluster: which there are, where they answer, and how they are."""
