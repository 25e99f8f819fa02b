"""What every section of the configuration has in common, and the kinds of values that several of them use."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveSeconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values cannot change after start-up."""

    model_config = ConfigDict(extra="forbid", frozen=True)
