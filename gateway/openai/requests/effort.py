"""How much a model shall think before it answers, in OpenAI's words."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_EFFORT_CHARACTERS = 32
NO_EFFORT = "none"
"""It shall not think."""
USUAL_EFFORT = "medium"
"""What OpenAI's API takes where nothing is said: it asks for nothing."""

Effort = Annotated[str, Field(pattern="^[a-z]+$", max_length=MAX_EFFORT_CHARACTERS)]
