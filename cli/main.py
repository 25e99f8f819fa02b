"""The `treadle` command: which commands there are, and how their errors are reported."""

from __future__ import annotations

import importlib

import click

from shared import __version__

# Command -> (module, one line of help). Modules are imported when their command runs, so `treadle --help` stays quick.
COMMANDS = {
    "up": ("cli.cluster.up", "Start the cluster, or what is missing of it, and wait until it serves."),
    "apply": ("cli.cluster.apply", "Take over models and keys that have changed, without a restart."),
    "down": ("cli.cluster.down", "Stop everything that `treadle up` started, and nothing else."),
    "status": ("cli.cluster.status", "Show the processes of the cluster."),
    "queue": ("cli.cluster.queue", "Show how many requests wait, and how long a new one would."),
    "logs": ("cli.cluster.logs.logs", "Print the logs of the cluster's processes, merged, and follow them."),
    "models": ("cli.models.command", "Fetch and list model files."),
    "program": ("cli.program.command", "Show what one step of a model computes, and what it costs."),
    "pipeline": ("cli.pipeline.command", "Find how operators of a model overlap best on a group of devices."),
    "bench": ("cli.bench.command", "Measure a running cluster, one engine, or the bookkeeping on a trace."),
    "profile": (
        "cli.bench.profiling.profile",
        "Measure what steps of a model cost on a node, for predicted waiting times.",
    ),
    "sim": ("cli.simulate.sim", "Simulate a cluster of devices that are not there."),
    "plan": ("cli.simulate.plan", "Find how many devices a workload needs."),
    "config": ("cli.config.command", "Check and show configurations."),
}


class LazyGroup(click.Group):
    """Imports a command's module on use; turns configuration errors into one message and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All commands, in the order a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of ``cmd_name`` and return its command, which is called ``command``.

        `CliError` where a package is not installed that it needs, such as the solver of ``treadle pipeline``.
        """
        if cmd_name not in COMMANDS:
            return None
        try:
            command = importlib.import_module(COMMANDS[cmd_name][0]).command
        except ModuleNotFoundError as error:
            from cli.errors import CliError

            raise CliError(
                f"`treadle {cmd_name}` needs {error.name!r}, which is not installed; install treadle[local]"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, written without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. `OperatorError` belongs to the processes and knows nothing of click."""
        from cli.errors import CliError
        from shared.errors import OperatorError

        try:
            return super().invoke(ctx)
        except OperatorError as error:
            raise CliError(str(error)) from error


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="treadle")
def main() -> None:
    """Treadle serves many language models on few devices and keeps each request's promise."""
