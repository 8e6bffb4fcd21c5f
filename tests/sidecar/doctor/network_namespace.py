"""Runs in its own network namespace, as root: `unshare --net python -m … FOLDER`.

Sets up a virtual cable, an address of each IP version as the outside world, a data source there,
and a process of the sidecar's user that listens where the rules redirect to. For each line of input
it prints a line of JSON: `rules SCRIPT` runs a script, `doctor` examines, `connect UID ADDRESS
PORT` says who answered, and `udp UID ADDRESS PORT` whether a packet could be sent. Expects nothing.
"""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from sidecar.config.file import read
from sidecar.doctor.__main__ import examine
from sidecar.doctor.examination import observe
from sidecar.doctor.host import TOOLS, Host
from tests.sidecar.doctor.recorded_host import AGENT, SIDECAR

SOURCE_ADDRESS, SOURCE_PORT = "192.0.2.10", 6333
WORLD = ("192.0.2.99", "2001:db8::99")
CABLE = """
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
ip addr add 192.0.2.1/24 dev v0
ip addr add 192.0.2.10/32 dev v1
ip -6 addr add 2001:db8::1/64 dev v0 nodad
ip route add default via 192.0.2.2 dev v0
ip -6 route add default via 2001:db8::2 dev v0
"""


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(word: bytes, uid: int, *places: tuple[str, int]) -> None:
    """A child of user `uid` that sends `word` on each connection, and keeps it until the other side
    leaves, so that its owner can be looked up."""
    ready, told = os.pipe()
    if os.fork() == 0:
        become(uid)
        opened = [socket.create_server(place, family=family(place[0])) for place in places]
        os.write(told, b"1")
        while True:
            for each in select.select(opened, [], [])[0]:
                with closing(each.accept()[0]) as connection, suppress(ConnectionError):
                    connection.sendall(word)
                    connection.recv(1)
    os.read(ready, 1)


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def as_user(uid: int, does: Callable[[], str]) -> str:
    """The result of `does` in a child of user `uid`."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        become(uid)
        try:
            said = does()
        except OSError as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        said = told.read()
    os.wait()
    return said


def connect(address: str, port: int) -> str:
    with closing(socket.socket(family(address))) as connection:
        connection.settimeout(1)
        connection.connect((address, port))
        return connection.recv(64).decode()


def send(address: str, port: int) -> str:
    with closing(socket.socket(family(address), socket.SOCK_DGRAM)) as sending:
        sending.sendto(b"?", (address, port))
    return "sent"


def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run(["sh", "-ec", CABLE], check=True)
    serve(b"sidecar", SIDECAR, ("127.0.0.1", 8710), ("127.0.0.1", 8712), ("::1", 8712))
    serve(b"source", 0, (SOURCE_ADDRESS, SOURCE_PORT))
    host = Host(tools=os.environ.get("IPTABLES_FOLDER", TOOLS))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        word, *told = json.loads(line)
        answer: object = None
        match word:
            case "rules":
                subprocess.run(["sh", "-ec", told[0]], check=True)
            case "doctor":
                settings = read(folder / "sidecar.yaml", {}, "host")
                found = examine(observe(settings, folder / "sidecar.yaml", host, AGENT))
                answer = [(each.check, each.severity.value, each.seen) for each in found]
            case "connect":
                answer = as_user(told[0], partial(connect, *told[1:]))
            case "udp":
                answer = as_user(told[0], partial(send, *told[1:]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
