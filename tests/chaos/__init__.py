"""A live cluster under load and faults, the history of what happened, and a checker that judges it."""
