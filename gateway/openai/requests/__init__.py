"""Completions and chats, as they are asked for."""
