"""Others' load generators, unmodified, against a predicted cluster. They are large, so they have an environment of their own:
`make test-peers` makes it; see `tests.gateway.test_peers` for what holds without them."""
