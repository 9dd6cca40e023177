"""The wire that tests break: whole, it loses nothing, however slowly somebody reads."""

from __future__ import annotations

import socket
import threading
import time

from tests.support.proxy import proxy_to

SIZE = 16 << 20


def test_a_client_that_is_slow_to_read_is_waited_for() -> None:
    """It was cut off after 50 ms: Debezium could not catch up through the proxy on a busy machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            server, _ = listener.accept()
            with server:
                server.sendall(bytes(SIZE))

        threading.Thread(target=serve, daemon=True).start()
        with (
            proxy_to("127.0.0.1", listener.getsockname()[1]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port)) as client,
        ):
            time.sleep(0.5)  # every buffer on the way is full by now
            got = 0
            while data := client.recv(1 << 20):
                got += len(data)
    assert got == SIZE


def test_a_cut_wire_ends_both_sides_although_nobody_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            server, _ = listener.accept()
            with server:
                try:
                    while True:
                        server.sendall(bytes(1 << 20))
                except OSError:
                    ended.set()

        threading.Thread(target=serve, daemon=True).start()
        with (
            proxy_to("127.0.0.1", listener.getsockname()[1]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port)),
        ):
            time.sleep(0.3)
            proxy.mode = "closed"
            assert ended.wait(5)
