"""Where Redis is: every form of its address, taken apart. Pure; no message of this room shows any part that is secret.

    redis://[USER[:PASSWORD]@]HOST[:6379][/DB]                       one server
    redis://[...@]HOST:PORT,HOST:PORT[/DB]                           of which one says that it is master
    redis+sentinel://[...@]HOST[:26379],HOST[:26379]/SERVICE[/DB]    sentinels, which know the master by a name
    unix://[...@]/PATH[?db=DB]                                       a socket of this machine

``rediss`` instead of ``redis`` is TLS, to the sentinels as well. Options behind ``?`` have redis-py's names. Reserved
characters of a password are percent-encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

REDIS_PORT = 6379
SENTINEL_PORT = 26_379
MAX_PORT = 65_535
MAX_HOSTS = 16  # asked one after the other or at once, whenever the master is looked for; no cluster has more
FORMS = "redis://HOST:PORT/DB, redis://HOST,HOST/DB, redis+sentinel://HOST,HOST/SERVICE/DB (rediss: TLS), unix:///PATH"

_SCHEMES = {"redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix"}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS = (*_FILES, "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL = ("sentinel_username", "sentinel_password")
_OPTIONS = ("db", *_TLS, *_SENTINEL)
_CERT_REQS = ("none", "optional", "required")
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]@/?#,]+)(:(?P<port>[0-9]{1,5}))?")

Host = tuple[str, int]


class AddressError(ValueError):
    """What is wrong with an address, in words that show nothing of it that may be secret."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How the other end is known, and how we are; the defaults trust what the machine trusts."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    cert_reqs: str = "required"
    checks_host: bool = True

    @property
    def files(self) -> list[str]:
        """Files that must be readable."""
        return [path for path in (self.ca_file, self.cert_file, self.key_file) if path]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """An address taken apart. ``service`` is the master's name at its sentinels; empty without sentinels."""

    hosts: tuple[Host, ...] = ()
    socket: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: Tls | None = None

    @property
    def has_sentinels(self) -> bool:
        """Whether the hosts are sentinels."""
        return bool(self.service)

    @property
    def place(self) -> str:
        """The address for people: without names, passwords and options."""
        if self.socket:
            return f"unix://{self.socket}"
        scheme = ("rediss" if self.tls else "redis") + ("+sentinel" if self.service else "")
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{scheme}://{hosts}/" + (f"{self.service}/" if self.service else "") + str(self.db)


def parse_address(url: str) -> RedisAddress:
    """Take an address apart; `AddressError` for one that cannot be."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise AddressError(f"an address of Redis begins with one of {', '.join(sorted(_SCHEMES))}; forms: {FORMS}")
    if "#" in rest:
        raise AddressError("an address of Redis has no '#'; percent-encode one in a password: %23")
    body, _, query = rest.partition("?")
    options = _options(query)
    credentials, at, body = body.rpartition("@")
    username, password = _credentials(credentials if at else "")
    is_tls, is_sentinel = scheme.startswith("rediss"), scheme.endswith("+sentinel")
    _check_options(options, is_tls=is_tls, is_sentinel=is_sentinel)
    if scheme == "unix":
        if not body.startswith("/"):
            raise AddressError("unix:// is followed by an absolute path")
        db = _db(options.get("db", "0"))
        return RedisAddress(socket=unquote(body), db=db, username=username, password=password)
    places, _, path = body.partition("/")
    service, db_text = _service_and_db(path, is_sentinel=is_sentinel)
    return RedisAddress(
        hosts=_hosts(places, SENTINEL_PORT if is_sentinel else REDIS_PORT),
        service=service,
        db=_db(options.get("db", db_text)),
        username=username,
        password=password,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        tls=_tls(options) if is_tls else None,
    )


def _credentials(text: str) -> tuple[str | None, str | None]:
    username, separator, password = text.partition(":")
    return unquote(username) or None, (unquote(password) or None) if separator else None


def _hosts(text: str, default_port: int) -> tuple[Host, ...]:
    hosts: list[Host] = []
    for number, part in enumerate(text.split(",")):
        found = _HOST.fullmatch(part)
        port = int(found["port"] or default_port) if found else 0
        if found is None or not 1 <= port <= MAX_PORT:
            hint = "reserved characters of a password are percent-encoded"
            raise AddressError(f"host {number + 1} of the address is no HOST:PORT ({hint})")
        hosts.append((unquote(found["host"]).strip("[]"), port))
    if len(hosts) > MAX_HOSTS:
        raise AddressError(f"an address names at most {MAX_HOSTS} hosts, not {len(hosts)}")
    if len(set(hosts)) < len(hosts):
        raise AddressError("a host is there twice")
    return tuple(hosts)


def _service_and_db(path: str, *, is_sentinel: bool) -> tuple[str, str]:
    if not is_sentinel:
        return "", path or "0"
    service, _, db = path.partition("/")
    if not service:
        raise AddressError(
            "behind its sentinels an address names the master's service: redis+sentinel://HOST/SERVICE/DB"
        )
    return unquote(service), db or "0"


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise AddressError("the database of an address is a number, such as redis://HOST/0")
    return int(text)


def _options(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise AddressError("an option of the address is there twice")
    if options.keys() - set(_OPTIONS):  # which is not shown: it may be the rest of a password
        raise AddressError(f"an address of Redis has an option that is not known; there are {', '.join(_OPTIONS)}")
    return options


def _check_options(options: dict[str, str], *, is_tls: bool, is_sentinel: bool) -> None:
    for names, fits, scheme in ((_TLS, is_tls, "rediss://"), (_SENTINEL, is_sentinel, "redis+sentinel://")):
        if not fits and (found := [name for name in names if name in options]):
            raise AddressError(f"{', '.join(found)}: of use with {scheme} only")
    if empty := [name for name, value in options.items() if not value]:
        raise AddressError(f"{', '.join(empty)}: empty")


def _tls(options: dict[str, str]) -> Tls:
    if ("ssl_certfile" in options) != ("ssl_keyfile" in options):
        raise AddressError("ssl_certfile and ssl_keyfile go together")
    cert_reqs = options.get("ssl_cert_reqs", "required")
    if cert_reqs not in _CERT_REQS:
        raise AddressError(f"ssl_cert_reqs is one of {', '.join(_CERT_REQS)}")
    checks_host = options.get("ssl_check_hostname", "true").lower()
    if checks_host not in (*_TRUE, *_FALSE):
        raise AddressError("ssl_check_hostname is true or false")
    ca_file, cert_file, key_file = (options.get(name) for name in _FILES)
    return Tls(ca_file, cert_file, key_file, cert_reqs, checks_host in _TRUE)
