"""What paging is worth: our bookkeeping beside contiguous allocation, on real lengths and without a model.

(PagedAttention, SOSP'23, §3, §6.) Requests come from `trace` or `generate`; `paged` runs our scheduler and `contiguous`
the baselines over a `buddy` allocator, both step by step in the loop of `run`, which sums up the `usage` of the memory.
`sharing` and `beams` measure what forks save. `comparison` does all of it. Deterministic; reads no clock.
"""
