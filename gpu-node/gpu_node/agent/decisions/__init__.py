"""The agent's decisions: what is pulled, asked of the engine, told to others and set aside. No I/O."""
