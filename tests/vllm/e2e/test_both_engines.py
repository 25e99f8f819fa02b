"""The tests of tests/e2e, asked of a cluster in which vLLM computes beside our own engine."""

from __future__ import annotations

from tests.e2e.test_answers import *  # noqa: F403 - each of its tests
from tests.e2e.test_bad_input import *  # noqa: F403
from tests.e2e.test_deaths import *  # noqa: F403
from tests.e2e.test_disconnect import *  # noqa: F403
from tests.e2e.test_observability import *  # noqa: F403
