"""A real Chromium without a window, and what pages are tried with in it.

The browser is the machine's own, as Debian and its relatives package it. Without one the tests that
need it are skipped, and fail in CI.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No sandbox: CI runs as root. Nothing that asks anything of a network.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


_MADE_UP: Final = """
const events = %s;
window.EventSource = class {
  constructor() { this.timer = setInterval(() => this.tell(), 50); }
  tell() {
    const event = events.length > 1 ? events.shift() : events[0];
    this.onmessage({ data: event.slice("data: ".length) });
  }
  close() { clearInterval(this.timer); }
};
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        message = "no Chromium on the PATH; on Debian: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def made_up_stream(events: bytes) -> str:
    """A script for before the page's own: its stream tells these events, the last one for ever."""
    return _MADE_UP % json.dumps(events.decode().split("\n\n")[:-1])


def violations(page: Page, inside: str = "body") -> list[str]:
    """What axe finds wrong for those who cannot see, or not well."""
    axe = resources.files("axe_playwright_python") / "axe.min.js"
    page.evaluate(axe.read_text(encoding="utf-8"))
    options = "{resultTypes: ['violations']}"
    found = page.evaluate(f"axe.run({inside!r}, {options})")["violations"]
    return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]


class ServedElsewhere:
    """A page on a port of its own."""

    def __init__(self, page: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> int:
        self._thread.start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
