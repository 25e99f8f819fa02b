"""`treadle queue`: how long requests wait now, by model and class, as the gateway tells every client."""

from __future__ import annotations

import http.client
from pathlib import Path

import click
import msgspec
from rich.markup import escape
from rich.table import Table

from cli.config.option import config_option
from cli.errors import CliError, ClusterError
from cli.tables import print_table
from gateway.openai.answers.answers import ErrorAnswer
from gateway.openai.answers.queue_answers import QueueReport
from shared.config.addresses import gateway_url, reachable
from shared.config.config import ClusterConfig, load_config

ANSWER_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_PATH = "/v1/queue"


@click.command("queue")
@config_option
@click.option("--json", "as_json", is_flag=True, help="The gateway's JSON object on stdout instead of the table.")
def command(config_file: Path | None, as_json: bool) -> None:
    """Show how many requests wait and run, and how long one that comes now would wait."""
    body = _ask(load_config(config_file))
    if as_json:
        click.echo(body)
        return
    report = msgspec.json.decode(body, type=QueueReport)
    if report.is_stale:
        raise ClusterError(_unknown(report.age_s))
    if report.data:
        print_table(_table(report))
    else:
        click.echo("nothing waits or runs")


def _ask(config: ClusterConfig) -> bytes:
    """The answer of the configured gateway, with the first of the configured keys."""
    gateway = config.gateway
    headers = {"Authorization": f"Bearer {config.keys[0].key.get_secret_value()}"} if config.keys else {}
    connection = http.client.HTTPConnection(reachable(gateway.host), gateway.port, timeout=ANSWER_TIMEOUT_S)
    address = f"{gateway_url(config)}{_PATH}"
    try:
        connection.request("GET", _PATH, headers=headers)
        with connection.getresponse() as response:
            body = response.read(_MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise CliError(f"{address} does not answer ({error}); is the cluster up? See `treadle status`") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        try:
            why = msgspec.json.decode(body, type=ErrorAnswer).error.message
        except msgspec.DecodeError:
            why = body.decode(errors="replace")
        raise ClusterError(f"{address} answered {response.status}: {why}")
    return body


def _unknown(age_s: float | None) -> str:
    if age_s is None:
        return "the gateway has heard nothing of the queue yet: ask again in a few seconds, or see `treadle status`"
    since = f"the queue manager has been silent for {age_s:.0f} s"
    return f"{since}, so nothing is known of the queue; see `treadle status`"


def _table(report: QueueReport) -> Table:
    table = Table("model", "class", box=None, pad_edge=False)
    for heading in ("waiting", "running", "wait", "wait p90"):
        table.add_column(heading, justify="right")
    for entry in report.data:
        counts = (str(entry.num_waiting), str(entry.num_running))
        table.add_row(
            escape(entry.model), escape(entry.slo_class), *counts, _seconds(entry.wait_s), _seconds(entry.wait_p90_s)
        )
    return table


def _seconds(wait_s: float | None) -> str:
    return "no node" if wait_s is None else f"{wait_s:.1f} s"
