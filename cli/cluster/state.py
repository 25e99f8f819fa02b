"""What `treadle up` remembers of the cluster between two commands: ``run/cluster.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cli.cluster.run_dir import write_atomically
from cli.errors import CliError
from shared.processes.process_record import ProcessRecord


@dataclass
class ClusterState:
    """Processes by name, in the order they were started, and the port of our own Redis."""

    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    redis_port: int | None = None
    """Kept when the cluster is down, so that Redis comes back on the same port."""

    @staticmethod
    def load(path: Path) -> ClusterState:
        """The state in ``path``; empty when there is none yet. `CliError` for what cannot be read."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=ClusterState)
        except FileNotFoundError:
            return ClusterState()
        except OSError as error:
            raise CliError(f"{path} cannot be read: {error.strerror}; is data_dir that of your cluster?") from error
        except msgspec.MsgspecError as error:
            raise CliError(
                f"{path} is damaged ({error}); end the processes of this cluster by hand (`ps -ef | grep python`), "
                "then delete the file"
            ) from error

    def save(self, path: Path) -> None:
        """Write the state so that a crash cannot leave half of it."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n")

    def running(self) -> list[str]:
        """Names of the processes that are alive."""
        return [name for name, record in self.processes.items() if record.leader() is not None]
