"""A port in front of a server that can speak TLS, return rubbish, or be cut off."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator


class Relay:
    """While `rubbish` is set, every request gets it as its response."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.rubbish: bytes | None = None
        self.accepted = 0
        self._tls = tls
        self._cut = False
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def cut(self) -> None:
        """Break every open connection, and each new one."""
        self._cut = True
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut = False

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            if self._cut:
                caller.close()
                continue
            self._open.add(caller)
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(self._open.discard, plain)
            caller = stack.enter_context(plain)
            if self._tls is not None:
                caller = stack.enter_context(self._tls.wrap_socket(plain, server_side=True))
            server = stack.enter_context(socket.create_connection(("127.0.0.1", self.target)))
            threading.Thread(target=self._back, args=(server, caller), daemon=True).start()
            while told := caller.recv(65536):
                if self.rubbish is not None:
                    caller.sendall(self.rubbish)
                else:
                    server.sendall(told)
            # To close it would not end it while another thread reads from it.
            server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _back(server: socket.socket, caller: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := server.recv(65536):
                caller.sendall(said)
            caller.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relaying(target: int, tls: ssl.SSLContext | None = None) -> Iterator[Relay]:
    relay = Relay(target, tls)
    try:
        yield relay
    finally:
        relay.close()
