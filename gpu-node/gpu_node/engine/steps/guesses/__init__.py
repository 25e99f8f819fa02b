"""Tokens that are guessed, and checked in one step."""
