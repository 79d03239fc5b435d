"""Where a route's requests go: one line of configuration, parsed and checked once.

    http://host:port/path        https://host/path        unix:///run/app.sock:/path

Pure. `{topic}` may stand in the path, any number of times, and nowhere else; everything else
in the path is sent as written, so it must already be legal in a request line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address
from typing import Final

TOPIC: Final = "{topic}"
_SOCKET_PATH_BYTES: Final = 107  # what sun_path holds, without its NUL
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
_PATH: Final = re.compile(r"/[!-~]*")


def target_pattern(placeholder: bool = True) -> str:
    """What parse_target takes, as one expression of any dialect; it leaves IPv6 to the parser."""
    label = _LABEL.pattern
    host = rf"(\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\]|{label}(\.{label})*\.?)"
    thousands = r"[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
    port = rf"(:([1-9][0-9]{{0,3}}|{thousands}))?"
    path = r"""([!"$-z|~]|\{topic\})*""" if placeholder else r"""[!"$-z|~]*"""
    http = rf"[hH][tT][tT][pP][sS]?://{host}{port}([/?]{path})?"
    unix = rf"[uU][nN][iI][xX]:///[^:{{}}]{{1,{_SOCKET_PATH_BYTES - 1}}}(:/{path})?"
    return rf"^({http}|{unix})$"


class Scheme(Enum):
    HTTP = "http"
    HTTPS = "https"
    UNIX = "unix"


_SCHEMES: Final = {scheme.value: scheme for scheme in Scheme}
_DEFAULT_PORT: Final = {Scheme.HTTP: 80, Scheme.HTTPS: 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed target. host has no brackets; port is 0 and host "localhost" for unix.

    path begins with "/" and may hold a query and `{topic}`.
    """

    scheme: Scheme
    host: str
    port: int
    socket_path: str
    path: str

    @property
    def authority(self) -> str:
        """What belongs into the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = self.scheme is Scheme.UNIX or self.port == _DEFAULT_PORT[self.scheme]
        return host if default else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.scheme is Scheme.UNIX:
            return f"unix://{self.socket_path}:{self.path}"
        return f"{self.scheme.value}://{self.authority}{self.path}"


def parse_target(text: str) -> Target:
    """Raise ValueError with one sentence that says what is wrong with it."""
    name, separator, rest = text.partition("://")
    scheme = _SCHEMES.get(name.lower())
    if scheme is None or not separator:
        raise ValueError("a target begins with http://, https:// or unix://")
    if scheme is Scheme.UNIX:
        socket_path, path = _split_socket(rest)
        return Target(scheme, "localhost", 0, socket_path, _check_path(path))
    cut = re.search(r"[/?#]", rest)
    authority, path = (rest[: cut.start()], rest[cut.start() :]) if cut else (rest, "/")
    host, port = _split_authority(authority, _DEFAULT_PORT[scheme])
    return Target(scheme, host, port, "", _check_path(path if path[0] != "?" else "/" + path))


def _split_socket(rest: str) -> tuple[str, str]:
    socket_path, colon, path = rest.partition(":")
    if not socket_path.startswith("/") or socket_path == "/":
        raise ValueError("a unix target needs an absolute socket path: unix:///run/app.sock:/path")
    if "{" in socket_path or "}" in socket_path:
        raise ValueError(f"{TOPIC} may stand in the path only, not in the socket's name")
    if len(socket_path.encode()) > _SOCKET_PATH_BYTES or "\0" in socket_path:
        raise ValueError(f"a socket path has at most {_SOCKET_PATH_BYTES} bytes and no NUL")
    if colon and not path.startswith("/"):
        raise ValueError("the path after a socket's name begins with /: unix:///run/app.sock:/path")
    return socket_path, path or "/"


def _split_authority(authority: str, default_port: int) -> tuple[str, int]:
    if "@" in authority:
        raise ValueError("a target holds no user or password: use a static header instead")
    if "{" in authority or "}" in authority:
        raise ValueError(f"{TOPIC} may stand in the path only, not in the host")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError(f"{authority!r} is not host or host:port (IPv6 in brackets)")
    host, digits = match.group(1), match.group(2)
    if host.startswith("["):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    elif not host:
        raise ValueError("the host is missing")
    elif not all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
        raise ValueError(f"{host!r} is not a host name")
    port = default_port if digits is None else int(digits)
    if not 0 < port < 65536:
        raise ValueError(f"{digits!r} is not a port from 1 to 65535")
    return host, port


def _check_path(path: str) -> str:
    if "#" in path:
        raise ValueError("a target has no fragment: the part after # is never sent")
    literal = path.replace(TOPIC, "")
    if "{" in literal or "}" in literal:
        raise ValueError(f"{TOPIC} is the only placeholder, and other braces must be escaped")
    if not _PATH.fullmatch(path):
        raise ValueError("the path holds a space, a control or a non-ASCII character: escape it")
    return path
