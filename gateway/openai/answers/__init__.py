"""Answers, and what is new of them."""
