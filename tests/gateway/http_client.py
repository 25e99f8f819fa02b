"""How official clients ask a gateway of a test: by HTTP, so that no certificates are read."""

from __future__ import annotations

import ssl

from openai import DefaultAsyncHttpxClient

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Each client by itself would read all of the system's: 20 ms, which is as long as many tests take."""


def http_client() -> DefaultAsyncHttpxClient:
    """With all else as the clients have it; it is closed with the client that it is given to."""
    return DefaultAsyncHttpxClient(verify=_NO_CERTIFICATES)
