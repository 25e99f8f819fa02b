"""Anthropic's Messages API: its requests, read as chats, its answers, written from the blocks of one, its batches."""
