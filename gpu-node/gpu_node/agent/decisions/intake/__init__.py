"""From pulled entries to runs in the engine: which requests begin, which wait, which are refused or given back."""
