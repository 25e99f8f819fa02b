"""`treadle logs`: what the processes of the cluster say, in one stream by time."""

from __future__ import annotations

import time
from pathlib import Path

import click

from cli.cluster.logs.log_lines import LogLine, as_json, merged, shown
from cli.cluster.logs.log_tail import LogTail
from cli.cluster.run_dir import RunDir
from cli.config.option import long_config_option
from cli.errors import CliError
from shared.config.config import load_config
from shared.telemetry.log_files import LOG_SUFFIX, process_of

DEFAULT_LINES = 100
MAX_LINES = 100_000  # of each file they are held until all are sorted
FOLLOW_POLL_S = 0.2


@click.command("logs")
@long_config_option
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("-n", "--lines", "num_lines", type=click.IntRange(0, MAX_LINES), default=DEFAULT_LINES, show_default=True)
@click.option("--json", "as_objects", is_flag=True, help="One JSON object a line.")
def command(
    config_file: Path | None, names: tuple[str, ...], *, follow: bool, num_lines: int, as_objects: bool
) -> None:
    """Print the last lines of the logs of all processes, or of those that are named, merged by time.

    Names are those that `treadle status` shows, and redis.
    """
    folder = RunDir(load_config(config_file)).logs
    tails = {path: LogTail(path) for path in _chosen(folder, names)}
    printer = _Printer(tails, as_objects=as_objects)
    lines = merged(tail.last(num_lines) for tail in tails.values())
    printer.show(lines[-num_lines:] if num_lines else [])
    try:
        while follow:
            if not names:  # nodes of pools come and go
                tails.update({path: LogTail(path) for path in _logs(folder) if path not in tails})
            printer.show(merged(tail.more() for tail in tails.values()))
            time.sleep(FOLLOW_POLL_S)
    except KeyboardInterrupt:
        return
    finally:
        for tail in tails.values():
            tail.close()


class _Printer:
    def __init__(self, tails: dict[Path, LogTail], *, as_objects: bool) -> None:
        self._tails = tails
        self._as_objects = as_objects

    def show(self, lines: list[LogLine]) -> None:
        width = max((len(tail.name) for tail in self._tails.values()), default=0)
        for line in lines:
            click.echo(as_json(line) if self._as_objects else shown(line, width))


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{LOG_SUFFIX}"))


def _chosen(folder: Path, names: tuple[str, ...]) -> list[Path]:
    there = {process_of(path): path for path in _logs(folder)}
    if not there:
        raise CliError(f"there are no logs in {folder}; `treadle up` starts the cluster that writes them")
    if unknown := [name for name in names if name not in there]:
        raise CliError(f"no log of {', '.join(unknown)} in {folder}; there are: {', '.join(there)}")
    return [there[name] for name in names] if names else list(there.values())
