"""Becomes a user and does one thing over the network: `python -m … UID WORD …`, run in a namespace.

`tcp ADDRESS PORT TEXT` prints what a connection heard, `udp ADDRESS PORT` whether a packet could be
sent, or the error's name; `listen WORD PORT` answers each connection with WORD until it is killed,
and prints `ready` first; `http PORT` serves a data source; `dns ADDRESS NAME ANSWER` is a resolver
that knows one name. `sidecar FILE` runs a sidecar.
Everything is imported before the user changes, because no other user can read this installation
everywhere. Knows no expectation.
"""

import importlib
import os
import pkgutil
import select
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO

SECONDS = 5.0
BOTH = ("0.0.0.0", "::")


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address: str, port: str, text: str) -> str:
    with closing(socket.socket(family(address))) as connection:
        connection.settimeout(SECONDS)
        connection.connect((address, int(port)))
        connection.sendall(text.encode())
        heard = b""
        while part := connection.recv(65536):
            heard += part
    return heard.decode("latin-1")


def udp(address: str, port: str) -> str:
    with closing(socket.socket(family(address), socket.SOCK_DGRAM)) as sending:
        sending.sendto(b"?", (address, int(port)))
    return "sent"


def listen(word: str, port: str) -> str:
    opened = []
    for address in BOTH:
        made = socket.socket(family(address))
        if ":" in address:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, int(port)))
        made.listen()
        opened.append(made)
    print("ready", flush=True)
    held = []
    while True:
        for each in select.select(opened, [], [])[0]:
            connection = each.accept()[0]
            with suppress(OSError):  # it may have left already
                connection.sendall(word.encode())
                connection.shutdown(socket.SHUT_WR)
            held.append(connection)  # as a server does, until the other side has closed too


def hold(address: str, port: str, *own_ports: str) -> str:
    """Keeps connections that come from these ports."""
    with ExitStack() as stack:
        for own in own_ports:
            connection = stack.enter_context(closing(socket.socket(family(address))))
            connection.bind(("", int(own)))
            connection.connect((address, int(port)))
        print("ready", flush=True)
        sys.stdin.read()
    return "let go"


class DataSource(BaseHTTPRequestHandler):
    """Answers every GET."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"of the source"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its base's name
        """Writes nothing: the test asks elsewhere what was forwarded."""


class BothVersions(ThreadingHTTPServer):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def http(port: str) -> str:
    server = BothVersions(("::", int(port)), DataSource)
    print("ready", flush=True)
    server.serve_forever()
    return "ended"


def dns(address: str, name: str, answer: str) -> str:
    wanted = b"".join(bytes([len(each)]) + each.encode() for each in name.split(".")) + b"\0"
    with closing(socket.socket(family(address), socket.SOCK_DGRAM)) as serving:
        serving.bind((address, 53))
        print("ready", flush=True)
        while True:
            asked, peer = serving.recvfrom(512)
            end = asked.index(b"\0", 12) + 1
            known, is_a = asked[12:end] == wanted, asked[end : end + 2] == b"\0\1"
            # A pointer to the name in the question, type A, class IN, a minute, four bytes.
            found = bytes.fromhex("c00c000100010000003c0004") + socket.inet_aton(answer)
            serving.sendto(
                asked[:2] + (b"\x81\x80" if known else b"\x81\x83") + b"\0\1\0"
                + (b"\1" if known and is_a else b"\0") + b"\0\0\0\0" + asked[12 : end + 4]
                + (found if known and is_a else b""), peer,
            )  # fmt: skip


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


WORDS: dict[str, Callable[..., str]] = {
    "tcp": tcp,
    "udp": udp,
    "listen": listen,
    "hold": hold,
    "http": http,
    "dns": dns,
}


def main() -> int:
    uid, word, *told = sys.argv[1:]
    if word == "sidecar":
        # Loaded while it can be read, with what a sidecar imports only when it needs it.
        import sidecar
        from sidecar import __main__ as program

        for module in pkgutil.walk_packages(sidecar.__path__, "sidecar."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
        "host.test".encode("idna")
        sys.argv = ["sidecar", "--config", *told, "--check"]
        with redirect_stdout(StringIO()):
            program.main()
        become(int(uid))
        print("ready", flush=True)
        sys.argv.pop()
        return program.main()
    become(int(uid))
    try:
        print(WORDS[word](*told))
    except OSError as error:
        print(type(error).__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
