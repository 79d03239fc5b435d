"""A client of a running sidecar's admin API, for the commands that ask or change one.

By the Unix socket where there is one, as inside the container; else by TCP, with a token if changes
or payloads are wanted. Whatever goes wrong is one line that says what to do.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from sidecar.errors import ConfigError, Problem, SidecarError

DEFAULT_SOCKET: Final = "/run/sidecar/admin.sock"
DEFAULT_PORT: Final = "8090"
TOKEN_VARIABLE: Final = "SIDECAR_ADMIN__TOKEN"  # noqa: S105 - a name
ANSWER_SECONDS: Final = 10.0


class _OverUnix(http.client.HTTPConnection):
    """HTTP through a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def add_client_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("which sidecar")
    group.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="its configuration, which tells socket, address and token",
    )
    group.add_argument(
        "--socket", metavar="PATH", help=f"its Unix socket ({DEFAULT_SOCKET} where there is one)"
    )
    group.add_argument(
        "--url", metavar="URL", help=f"or its address (http://127.0.0.1:{DEFAULT_PORT})"
    )
    group.add_argument(
        "--token-file", metavar="FILE", help=f"token for changes by --url; or {TOKEN_VARIABLE}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON as the API gives it")


class Client:
    """One connection for each question, as few are asked."""

    def __init__(self, args: Namespace) -> None:
        self._socket: str | None = args.socket
        self._url: str | None = args.url
        if self._socket is not None and self._url is not None:
            raise ConfigError([Problem("", "--socket or --url, not both")])
        self._token = _token(args.token_file)
        if args.config is not None:
            self._as_configured(args.config)
        elif self._socket is None and self._url is None:
            found = os.environ.get("SIDECAR_ADMIN__SOCKET") or DEFAULT_SOCKET
            if _is_there(Path(found)):
                self._socket = found
            else:
                port = os.environ.get("SIDECAR_ADMIN__PORT") or DEFAULT_PORT
                self._url = f"http://127.0.0.1:{port}"

    def _as_configured(self, file: Path) -> None:
        """What was not given by itself."""
        from sidecar.settings import load_settings  # noqa: PLC0415 (the others do without)

        admin = load_settings(file, os.environ).admin
        if self._token is None and admin.token is not None:
            self._token = admin.token.get_secret_value()
        if self._socket is not None or self._url is not None:
            return
        if admin.socket is not None and _is_there(admin.socket):
            self._socket = str(admin.socket)
        elif admin.port == 0:
            raise ConfigError([Problem("admin.port", "takes a free one: name it by --url")])
        else:
            host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(admin.host, admin.host)
            self._url = f"http://{host}:{admin.port}"

    def get(self, path: str, **query: Any) -> Any:
        return self.ask("GET", path, **query)

    def ask(
        self, method: str, path: str, body: object = None, wait_seconds: float = 0, **query: Any
    ) -> Any:
        """The answer's JSON. Raises SidecarError for every other answer, and for none."""
        headers = {"accept": "application/json"}
        if self._token is not None and self._socket is None:
            headers["authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["content-type"] = "application/json"
        if wait_seconds:
            query["wait_seconds"] = f"{wait_seconds:g}"
        where = path + (f"?{urlencode(query)}" if query else "")
        connection = self._connection(ANSWER_SECONDS + wait_seconds)
        try:
            connection.request(method, where, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise SidecarError(f"{self._name}: {_reason(error)}; {self._advice}") from None
        finally:
            connection.close()
        return self._told(answer.status, text)

    def _told(self, status: int, text: bytes) -> Any:
        try:
            told = json.loads(text)
        except ValueError:
            raise SidecarError(
                f"{self._name} answers {status} and no JSON: is it a sidecar?"
            ) from None
        if status >= 300:
            detail = told.get("detail") if isinstance(told, dict) else None
            raise SidecarError(f"refused ({status}): {detail or 'without a reason'}")
        return told

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._socket is not None:
            return _OverUnix(self._socket, timeout)
        url = self._url or ""
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            scheme, host, port = parts.scheme, parts.hostname or "", parts.port
            host.encode("idna")  # as it is asked for
        except ValueError:
            scheme, host, port = "", "", None
        if scheme not in ("http", "https") or not host:
            raise ConfigError([Problem("--url", f"is no http://host:port: {url}")])
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    @property
    def _name(self) -> str:
        return self._socket or self._url or ""

    @property
    def _advice(self) -> str:
        return "see that a sidecar runs there, or name one by --socket or --url"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its directory is closed to this user, or it is no path at all
        return False


def path_of(*parts: object) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _token(file: str | None) -> str | None:
    if file is None:
        where, given = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
        if not given:
            return None
    else:
        where = "--token-file"
        try:
            given = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([Problem(where, f"{file}: {_reason(error)}")]) from None
    token = given.strip()
    if not token.isascii() or not token.isprintable() or not token:
        raise ConfigError([Problem(where if file is None else f"{where} {file}", "holds no token")])
    return token
