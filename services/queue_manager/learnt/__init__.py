"""What is learnt from traffic: lengths, arrival rates, lifetimes of streams, token rates, errors of predictions."""
