"""Answers as they are written: whole or streamed, with the news of those that wait."""
