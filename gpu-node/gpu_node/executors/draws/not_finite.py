"""What the client of a draw is told that has given nothing."""

NOT_FINITE = "the model's logits are not finite numbers"
