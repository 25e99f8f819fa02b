"""Tenants: keys, shares of slots, and promises that a tenant may ask for."""
