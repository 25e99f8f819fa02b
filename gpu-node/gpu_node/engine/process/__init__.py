"""The engine as a process: its protocol with the agent, and the file of its steps."""
