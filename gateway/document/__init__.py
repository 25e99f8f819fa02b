"""The OpenAPI document: what clients may ask for, and what they are answered."""
