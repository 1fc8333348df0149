"""Counts what TCP carries on its way to a server on loopback."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Listens on a port and forwards everything to another."""

    def __init__(self, port: int, server: int) -> None:
        self.port = port
        self._server = server
        self._listener = socket.socket()
        self._lock = threading.Lock()
        self._up = self._down = 0

    def __enter__(self) -> Self:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Wakes the accepting thread; a close alone doesn't.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def counts(self) -> tuple[int, int]:
        """Bytes to the server and from it, so far."""
        with self._lock:
            return self._up, self._down

    def _accept(self) -> None:
        while True:
            try:
                node, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                node.close()
                continue
            for end in (node, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends, up in (((node, server), True), ((server, node), False)):
                threading.Thread(target=self._carry, args=(*ends, up), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        try:
            while piece := source.recv(1 << 16):
                with self._lock:
                    if up:
                        self._up += len(piece)
                    else:
                        self._down += len(piece)
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # If one side closes, close the other.
            for end in (source, sink):
                end.close()
