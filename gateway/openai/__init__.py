"""OpenAI's shapes: what may be asked, and what answers and errors look like."""
