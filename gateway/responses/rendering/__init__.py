"""Answers of the Responses API, written from the blocks of a chat's answer."""
