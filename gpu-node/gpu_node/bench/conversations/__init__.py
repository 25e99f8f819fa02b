"""Conversations that come back, on a device with room for few of them: what tiers below it are worth."""
