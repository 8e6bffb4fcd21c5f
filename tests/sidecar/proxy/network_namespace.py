"""Runs in a network namespace of its own, as root: `unshare --net python -m … FOLDER`.

One end of a cable with an address of either IP version, data sources at others, the ways of a
sidecar, and an agent of a user of its own. Answers a line of JSON for each line that it is told:
`rules SCRIPT` runs one; `say ADDRESS PORT TEXT NAME` has the agent connect, over TLS to NAME where
there is one, send TEXT, and tells all that it heard; `udp ADDRESS PORT` whether the agent could
send a packet; `straight ADDRESS PORT` what the sidecar's user hears there itself;
`decisions` what is recorded. The sidecar's user is root: no other can read this installation
everywhere. Knows no expectation.
"""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from policies.ground.addresses import ListenAddress
from sidecar.proxy.assembly import ProxyPorts
from sidecar.settings.model import Source, UpstreamTls
from tests.support.certificates import authority
from tests.support.proxy import policy, sidecar, source
from tests.support.scripted_source import Script, Seen, answer, data_source

AGENT, PORT = 1000, 8712
HTTP, TLS, TCP = 8000, 443, 5432
SOURCES = ("192.0.2.10", "2001:db8::10")
CABLE = """
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
ip addr add 192.0.2.1/24 dev v0
ip addr add 192.0.2.10/32 dev v1
ip -6 addr add 2001:db8::1/64 dev v0 nodad
ip -6 addr add 2001:db8::10/128 dev v1 nodad
ip route add default via 192.0.2.2 dev v0
ip -6 route add default via 2001:db8::2 dev v0
"""


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def connect(address: str, port: int) -> socket.socket:
    made = socket.socket(family(address))
    made.settimeout(5)
    made.connect((address, port))
    return made


def say(client: ssl.SSLContext, address: str, port: int, text: str, name: str) -> str:
    plain = connect(address, port)
    with closing(client.wrap_socket(plain, server_hostname=name) if name else plain) as connection:
        connection.sendall(text.encode())
        if not name:
            connection.shutdown(socket.SHUT_WR)
        heard = b""
        while part := connection.recv(65536):
            heard += part
    return heard.decode("latin-1")


def udp(address: str, port: int) -> str:
    with closing(socket.socket(family(address), socket.SOCK_DGRAM)) as sending:
        sending.sendto(b"?", (address, port))
    return "sent"


def agent(client: ssl.SSLContext, told: int, says: int) -> None:
    """The agent, to its end."""
    os.setgroups([])
    os.setresgid(AGENT, AGENT, AGENT)
    os.setresuid(AGENT, AGENT, AGENT)
    with os.fdopen(told) as lines, os.fdopen(says, "w") as out:
        for line in lines:
            word, *more = json.loads(line)
            try:
                answered = say(client, *more) if word == "say" else udp(*more)
            except OSError as error:
                answered = type(error).__name__
            print(json.dumps(answered), file=out, flush=True)


@contextmanager
def agents() -> Iterator[Any]:
    """What has the agent do something, and returns what it says."""
    client = authority().client()
    "api.test".encode("idna")  # loaded while it can be read
    told, tell = os.pipe()
    hear, says = os.pipe()
    if os.fork() == 0:
        os.close(tell)
        agent(client, told, says)
        os._exit(0)
    with os.fdopen(tell, "w") as out, os.fdopen(hear) as heard:

        def asked(*told: object) -> Any:
            print(json.dumps(told), file=out, flush=True)
            return json.loads(heard.readline())

        yield asked


async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks first, and then in capitals."""
    writer.write(b"hello\n")
    with suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line.upper())
    writer.close()


def last(script: Script) -> Script:
    """The same, and the end of the connection."""

    async def closing(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await script(seen, writer)
        writer.close()

    return closing


def sources(http: int, tls: int, tcp: int) -> list[Source]:
    here, ours = "127.0.0.1", authority()
    api = source(tls, alias="api", listen=None, hosts=("api.test:443",), writes="allow")
    verified = UpstreamTls(ca=ours.path, server_name="api.test")
    pg = source(tcp, "tcp", alias="pg", listen=None, hosts=tuple(_addresses(TCP)))
    return [
        source(http, listen=None, hosts=(f"kb.test:{HTTP}", *_addresses(HTTP))),
        replace(api, upstream=f"https://{here}:{tls}", tls=verified),
        replace(pg, upstream=f"tcp://{here}:{tcp}"),
    ]


def _addresses(port: int) -> list[str]:
    return [f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in SOURCES]


@asynccontextmanager
async def world(folder: Path) -> Any:
    """A sidecar that leads to three data sources, none of which is where the agent thinks."""
    ours = authority()
    closed = policy(denied_sources=("rest://kb/secret",))
    tcp = await asyncio.start_server(greets, "127.0.0.1", 0)
    async with (
        data_source(answer(body=b"of kb")) as http,
        data_source(last(answer(body=b"of api")), ours.server("api.test")) as tls,
        sidecar(folder, closed) as made,
    ):
        configured = sources(http.port, tls.port, tcp.sockets[0].getsockname()[1])
        named = ProxyPorts(None, transparent=ListenAddress("127.0.0.1", PORT))
        proxy = made.proxy(configured, named=named)
        await proxy.start()
        # Where the agent thinks they are somebody listens too, and must not be reached.
        there = [
            await asyncio.start_server(_never, address, port)
            for address in SOURCES
            for port in (HTTP, TLS, TCP)
        ]
        try:
            yield made
        finally:
            await proxy.close(1)
            for each in (*there, tcp):
                each.close()


async def _never(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"straight")
    writer.close()


async def serve(folder: Path, asked: Any) -> None:
    loop = asyncio.get_running_loop()
    async with world(folder) as made:
        print(json.dumps("ready"), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, *told = json.loads(line)
            found: object = None
            match word:
                case "rules":
                    subprocess.run(["sh", "-ec", told[0]], check=True)
                case "decisions":
                    found = await made.decisions()
                case "straight":
                    with closing(await loop.run_in_executor(None, connect, *told)) as opened:
                        found = (await loop.run_in_executor(None, opened.recv, 64)).decode()
                case _:
                    found = await loop.run_in_executor(None, asked, word, *told)
            print(json.dumps(found), flush=True)


def main() -> None:
    subprocess.run(["sh", "-ec", CABLE], check=True)
    # Before there is a thread or a loop, and while everything can be read.
    with agents() as asked:
        uvloop.run(serve(Path(sys.argv[1]), asked))


if __name__ == "__main__":
    main()
