"""The sockets of the clients' port: bound once, and shared by all workers."""

from __future__ import annotations

import socket

from shared.service.admin.admin import port_taken


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """One for each address of ``host``, bound and not listening yet; `PortTakenError` when that cannot be."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            # connections of an earlier life that linger in TIME_WAIT do not count
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError as error:
        for one in sockets:
            one.close()
        raise port_taken(f"{host}:{port}", error) from error
    return sockets
