"""Files of lengths: what is read of them, and what is said of those that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from shared.files.length_trace import LengthTrace, TraceError, TraceLine, read_lengths

FULL = "arrival_s,input_tokens,output_tokens,model,client,other\n7,20,4,y,2,\n5.5,10,3,x,1,\n6,5000,1,x,1,\n"
LENGTHS = "input_tokens,output_tokens\n6,7\n4,5\n"


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_requests_come_in_the_order_of_arrival_and_those_that_are_too_long_are_counted(
    tmp_path: Path, name: str
) -> None:
    trace = read_lengths(write(tmp_path / name, FULL), max_tokens=24)
    assert trace == LengthTrace((TraceLine(10, 3, 5.5, "x", "1"), TraceLine(20, 4, 7.0, "y", "2")), num_too_long=1)
    assert trace.has_arrivals


def test_without_arrivals_the_order_is_that_of_the_file(tmp_path: Path) -> None:
    trace = read_lengths(write(tmp_path / "trace.csv", LENGTHS), max_tokens=100)
    assert trace == LengthTrace((TraceLine(6, 7, None, "", ""), TraceLine(4, 5, None, "", "")), num_too_long=0)
    assert not trace.has_arrivals


def test_contents_have_a_number_for_each_512_tokens(tmp_path: Path) -> None:
    text = "input_tokens,output_tokens,hash_ids\n513,1,7 9\n512,1,4294967295\n5,1,\n"
    trace = read_lengths(write(tmp_path / "trace.csv", text), max_tokens=1000)
    assert [line.hash_ids for line in trace.lines] == [(7, 9), (4294967295,), ()]


@pytest.mark.parametrize("hash_ids", ["7", "7 8 9", "7 x", "7 -1", "7 4294967296"])
def test_contents_that_are_none_are_said(tmp_path: Path, hash_ids: str) -> None:
    path = write(tmp_path / "trace.csv", f"input_tokens,output_tokens,hash_ids\n513,1,{hash_ids}\n")
    with pytest.raises(TraceError, match="line 2: hash_ids shall be 2 numbers from 0 on, one for each 512 tokens"):
        read_lengths(path, max_tokens=1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "a trace has columns input_tokens and output_tokens, not a, b"),
        ("input_tokens,output_tokens\n5,5\nx,5\n", "line 3: invalid literal"),
        ("input_tokens,output_tokens\n5\n", "line 2: "),
        ("input_tokens,output_tokens\n0,5\n", "line 2: a length below 1"),
        ("arrival_s,input_tokens,output_tokens\nnan,5,5\n", "or a time that is none"),
        ("input_tokens,output_tokens\n96,5\n", "no request of at most 100 tokens"),
        ("", "columns"),
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_lengths(write(tmp_path / "trace.csv", text), max_tokens=100)


def test_broken_and_missing_files_are_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(LENGTHS.encode())[:-10])
    for broken in (path, tmp_path / "none.csv"):
        with pytest.raises(TraceError, match="cannot be read"):
            read_lengths(broken, max_tokens=100)
