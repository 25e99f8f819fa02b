"""From pulled entries to runs in the engine: who begins, who waits for what, who is refused or given back."""
