"""Ask a process of this machine how it is: ``python -m shared.processes.probe [--port PORT] [PATH]``.

The health check of the images, which bring no curl; it imports little, since it is started every few seconds.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys

ADMIN_PORT_ENV = "TREADLE_ADMIN_PORT"  # as in shared.config.config, which would import ten times as much
TIMEOUT_S = 4.0


def main() -> int:
    """Print what the process answers. Exit status 0 where that is a success, else 1."""
    own = os.environ.get(ADMIN_PORT_ENV)
    parser = argparse.ArgumentParser(prog="python -m shared.processes.probe", description="Ask a process how it is.")
    parser.add_argument("path", nargs="?", default="/readyz")
    parser.add_argument("--port", type=int, default=own, required=not own, help=f"default: {ADMIN_PORT_ENV}")
    arguments = parser.parse_args()
    connection = http.client.HTTPConnection("127.0.0.1", arguments.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", arguments.path)
        answer = connection.getresponse()
        sys.stdout.write(answer.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"port {arguments.port} does not answer: {error}\n")
        return 1
    finally:
        connection.close()
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
