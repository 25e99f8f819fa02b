"""Costs of giving way, measured on a node, fitted by regression, and tabulated for engines (AdaptiveLLM, §3.2)."""
