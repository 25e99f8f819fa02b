"""Where requests come from: files of lengths, and the generator."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpu_node.executors.predicted.lengths import SHAREGPT_INPUT, SHAREGPT_OUTPUT, LogNormal
from gpu_node.paging.generate import generate
from gpu_node.paging.trace import PagingTrace, TraceRequest, read_trace
from shared.files.length_trace import TraceError

WITH_ARRIVALS = "arrival_s,input_tokens,output_tokens,model\n9.5,100,1,m\n5.0,10,2,m\n5.5,20,3,m\n7.0,30,4,m\n"
WITHOUT = "input_tokens,output_tokens\n" + "".join(f"{number},1\n" for number in range(1, 51))


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_a_trace_with_arrivals_is_read_from_its_beginning(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, WITH_ARRIVALS), max_tokens=50, num_requests=2, seed=0)
    assert trace == PagingTrace((TraceRequest(10, 2, 0.0), TraceRequest(20, 3, 0.5)), num_too_long=1, has_arrivals=True)


def test_a_trace_without_arrivals_is_sampled(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(WITHOUT.encode()))
    one, same, other = (read_trace(path, max_tokens=41, num_requests=10, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.requests != other.requests
    assert (len(set(one.requests)), one.num_too_long, one.has_arrivals) == (10, 10, False)
    everything = read_trace(path, max_tokens=41, num_requests=1000, seed=1)
    assert {request.input_tokens for request in everything.requests} == set(range(1, 41))


def test_poisson_arrivals_have_the_rate() -> None:
    trace = generate(2000, 2048, seed=0).drawn(rate_per_s=4.0, seed=1)
    times = [request.arrival_s for request in trace.requests]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(2000 / 4.0, rel=0.1)
    assert trace.has_arrivals


def test_a_lognormal_has_the_moments_that_it_was_fitted_to() -> None:
    found = LogNormal.of_moments(mean=100.0, deviation=100.0)
    lengths = [found.tokens((number + 0.5) / 10_000) for number in range(10_000)]
    assert sum(lengths) / 10_000 == pytest.approx(100.0, rel=0.02)
    assert found.tokens(1e-12) == 1
    assert (SHAREGPT_INPUT.mu, SHAREGPT_INPUT.sigma) == pytest.approx((4.26, 1.25), abs=0.01)
    assert (SHAREGPT_OUTPUT.mu, SHAREGPT_OUTPUT.sigma) == pytest.approx((5.54, 0.67), abs=0.01)


def test_generated_requests_are_like_sharegpt_and_fit() -> None:
    trace = generate(2000, 2048, seed=0)
    assert trace == generate(2000, 2048, seed=0)
    assert trace.requests != generate(2000, 2048, seed=1).requests
    assert all(request.input_tokens + request.output_tokens <= 2048 for request in trace.requests)
    assert sum(request.input_tokens for request in trace.requests) / 2000 == pytest.approx(154.6, rel=0.15)
    assert sum(request.output_tokens for request in trace.requests) / 2000 == pytest.approx(317.9, rel=0.1)
    with pytest.raises(TraceError, match="hardly any"):
        generate(1, 2, seed=0)
