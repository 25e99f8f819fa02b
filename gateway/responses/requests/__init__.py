"""Requests of the Responses API, read as chats."""
