"""Anthropic's shapes: requests read as chats, answers, events of streams, errors."""
