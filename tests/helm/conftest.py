from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.helm.chart import Chart


@pytest.fixture(scope="session")
def chart() -> Iterator[Chart]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        yield Chart(process)
