"""Attention done on other devices, and operators cut short so that it waits little (Weaver)."""
