"""What vLLM needs of the machine is asked before it is imported."""

from __future__ import annotations

import pytest

from gpu_node.vllm.installation.installed import VllmError, check_libraries


def test_a_library_that_is_missing_is_named() -> None:
    check_libraries(["libc.so.6"])
    with pytest.raises(VllmError, match=r"vLLM needs libnobody\.so\.1, which is not here: install it"):
        check_libraries(["libc.so.6", "libnobody.so.1"])
