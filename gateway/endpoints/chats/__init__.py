"""Conversations: chat completions, and the interfaces that are read as chats."""
