"""What an engine does about the commands of its agent, and what the agent hears of it."""
