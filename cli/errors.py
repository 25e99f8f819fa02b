"""What the CLI says when something is wrong: one message on stderr, no traceback."""

from __future__ import annotations

import click


class CliError(click.ClickException):
    """The user can put this right: configuration, a missing file, a taken port. The text says how."""

    exit_code = 2


class ClusterError(click.ClickException):
    """The cluster itself failed: a process died, or was not ready in time."""

    exit_code = 1
