"""A pod's network: a namespace with both IP versions, and one beyond its cable with the world.

`Pod.redirect` runs the init container's own command in there. Knows no expectation.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest

from tests.architecture.tree import ROOT
from tests.support.packet_filter import PATH, WITH_PROGRAMS, possible

ENVIRONMENT = os.environ | {"PATH": PATH, "PYTHONPATH": str(ROOT)}
AGENT, SIDECAR, PORT = 1000, 20102, 8712
OUTSIDE = {4: "192.0.2.2", 6: "2001:db8::2"}
"""The world's address; everything that the pod sends beyond its own goes there."""

CABLE = """
ip link set lo up
ip link set v0 up
ip addr add 192.0.2.1/24 dev v0
ip -6 addr add 2001:db8::1/64 dev v0 nodad
ip route add default via 192.0.2.2 dev v0
ip -6 route add default via 2001:db8::2 dev v0
"""
# Every address is the world's own, so that what gets out is heard there; the reserved ones too, so
# that a connection that gets there is refused at once.
WORLD = """
ip link set lo up
ip link set v1 up
ip addr add 192.0.2.2/24 dev v1
ip -6 addr add 2001:db8::2/64 dev v1 nodad
ip addr add 192.0.2.20/32 dev v1
ip -6 addr add 2001:db8::20/128 dev v1 nodad
ip route add local 198.51.100.0/24 dev lo
ip -6 route add local 2001:db8:1::/64 dev lo
"""
ELSEWHERE = ("198.51.100.7", "2001:db8:1::7")


NEEDS_A_TOOL = pytest.mark.skipif(
    not (possible("nft") or possible("iptables")), reason="neither nft nor iptables is installed"
)


class Namespace:
    """A network namespace, which lasts as long as a process that waits in it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._holder = self._start(
            ["unshare", "--net", "--mount", *WITH_PROGRAMS, "sh", "-c", "echo ready; cat"]
        )

    @property
    def pid(self) -> int:
        return self._holder.pid

    def run(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter(), *command], input=given, env=ENVIRONMENT, cwd=ROOT,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def script(self, text: str) -> None:
        ended = self.run("sh", "-ec", text)
        assert ended.returncode == 0, ended.stderr

    def as_user(self, uid: int, *told: object) -> str:
        """What a process of user `uid` has to say about `told`."""
        ended = self.run(*_as_user(uid, told))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def start(self, uid: int, *told: object) -> subprocess.Popen[str]:
        """Like `as_user`, but goes on; returns when the process says that it is ready."""
        return self.started(*_as_user(uid, told))

    def started(self, *command: str) -> subprocess.Popen[str]:
        return self._start([*self._enter(), *command])

    def _enter(self) -> list[str]:
        namespaces = f"/proc/{self.pid}/ns"
        entered = [f"--net={namespaces}/net", f"--mount={namespaces}/mnt"]
        return ["nsenter", *entered, f"--wdns={ROOT}"]

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, env=ENVIRONMENT, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def _as_user(uid: int, told: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "tests.sidecar.redirect.as_user", str(uid), *map(str, told)]


class Pod(Namespace):
    """The namespace of a pod, and the `world` that it is connected with."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        self.world = Namespace(stack)
        self.script(f"ip link add v0 type veth peer name v1 netns {self.world.pid}")
        self.world.script(WORLD)
        self.script(CABLE)

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Self]:
        with ExitStack() as stack:
            yield cls(stack)

    def redirect(
        self, *more: str, privileges: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """The init container's own command, with the rights that `setpriv` leaves."""
        command = [sys.executable, "-m", "sidecar.redirect", "--port", str(PORT)]
        return self.run(*privileges, *command, "--sidecar-user", str(SIDECAR), *more)

    def redirected(self, *more: str) -> None:
        ended = self.redirect("--resolvers", "192.0.2.53", *more)
        assert ended.returncode == 0, ended.stderr
