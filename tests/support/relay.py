"""A port in front of a server that can speak TLS, return rubbish, or be cut off."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


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


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A certificate for a server on 127.0.0.1, and the file by which a client trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redis")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    shown, secret = folder / "cert.pem", folder / "key.pem"
    shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, secret)
    return context, shown
