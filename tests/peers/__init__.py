"""Others' load generators, unmodified, against a predicted cluster.

They are large, so they have an environment of their own, which `make test-peers` makes. What they send is replayed
without them by `tests.gateway.test_peers`.
"""
