"""The relay gives back what it got, in order, and as late as it was told."""

from __future__ import annotations

import socket
import threading
import time

from tests.rig.ports import free_ports
from tests.rig.relay import Relay


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def test_bytes_arrive_in_order_each_way_late_by_the_delay() -> None:
    near, far = free_ports(2)
    with socket.create_server(("127.0.0.1", far)) as server, Relay(near, far) as relay:
        echo = threading.Thread(target=_echo, args=(server,))
        echo.start()
        with socket.create_connection(("127.0.0.1", near), timeout=10) as client:
            sent = bytes(range(256)) * 1000
            client.sendall(sent)
            with client.makefile("rb") as back:
                assert back.read(len(sent)) == sent
                relay.delay_seconds = 0.1
                began = time.monotonic()
                client.sendall(b"late")
                assert back.read(4) == b"late"
                assert time.monotonic() - began >= 0.2
        echo.join(10)
        assert not echo.is_alive()
