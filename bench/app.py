"""The application of the measurements: nginx where it is, else a small server of our own.

Both answer 204 at once. `python -m bench.app PORT` runs our own.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.wire import App

_NGINX = """
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 60s;
  client_body_temp_path {directory}; client_max_body_size 64m;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 204; }} }}
}}
"""


def start(port: int, cpu: int) -> subprocess.Popen[bytes]:
    """Start it on one core; whoever starts it ends it."""
    if shutil.which("nginx"):
        directory = tempfile.mkdtemp(prefix="sidecar-bench-nginx-")
        file = Path(directory) / "nginx.conf"
        file.write_text(_NGINX.format(directory=directory, port=port), encoding="ascii")
        command = ["nginx", "-c", str(file)]
    else:
        command = [sys.executable, "-m", "bench.app", str(port)]
    return subprocess.Popen(["taskset", "-c", str(cpu), *command])


def name() -> str:
    return "nginx" if shutil.which("nginx") else "bench.app"


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(App, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
