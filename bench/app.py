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


def start(port: int) -> subprocess.Popen[bytes]:
    """Whoever starts it ends it."""
    if shutil.which("nginx"):
        directory = tempfile.mkdtemp(prefix="sidecar-bench-nginx-")
        file = Path(directory) / "nginx.conf"
        file.write_text(_NGINX.format(directory=directory, port=port), encoding="ascii")
        command = ["nginx", "-c", str(file)]
    else:
        command = [sys.executable, "-m", "bench.app", str(port)]
    return subprocess.Popen(command)


def name() -> str:
    if not shutil.which("nginx"):
        return "bench.app"
    told = subprocess.run(["nginx", "-v"], check=True, capture_output=True, text=True).stderr
    return told.partition(":")[2].strip()


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(App, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
