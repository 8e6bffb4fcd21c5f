"""A library behind a sidecar, and the ways on which a client comes to it: it is told of one by what
its operator would change, an address or the environment, and by nothing else.

Knows the ways. Knows no client.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from sidecar.proxy.limits import LIMITS
from sidecar.settings import UpstreamTls
from tests.sidecar.clients.library import Library, lending
from tests.sidecar.proxy.certificates import authority
from tests.sidecar.proxy.stand import Sidecar, listening, policy, sidecar, source

WAYS = ("listen", "listen_tls")
"""`listen`: the client's address is the sidecar's. `listen_tls`: the same with TLS, before and
behind it."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")

# A client that closes without having heard anything is at first like one that has only ended its
# request: it is waited for, but not as long here.
_LIMITS = replace(LIMITS, half_close_seconds=0.1)

READERS = policy(denied_sources=("rest://kb/shut", "rest://kb/shut/*"))
"""Everything may be read but what is below `/shut`."""


@dataclass
class Stand:
    """The library, the sidecar before it, and the port on which this way begins."""

    way: str
    library: Library
    sidecar: Sidecar
    port: int

    @property
    def origin(self) -> int:
        """The library's port that is meant on this way."""
        return self.library.tls_port if self._tls else self.library.port

    @property
    def _tls(self) -> bool:
        return "tls" in self.way

    @contextmanager
    def directly(self, port: int | None = None) -> Iterator[str]:
        """The library's own address, with nothing in the environment that leads elsewhere. A
        `port`, here as below, stands before the one that is meant."""
        yield from self._at(port or self.origin)

    @contextmanager
    def through(self, port: int | None = None) -> Iterator[str]:
        """The address to use on this way, in the environment that goes with it."""
        yield from self._at(port or self.port)

    def _at(self, port: int) -> Iterator[str]:
        trust = dict.fromkeys(_TRUST, str(authority().path)) if self._tls else {}
        with _environment(trust):
            yield f"http{'s' * self._tls}://127.0.0.1:{port}"

    async def opened(self) -> list[dict[str, str]]:
        """Of each record, what was committed to and not written in clear: the user, the task."""
        await self.sidecar.records()
        batch = await self.sidecar.spool.batch(100, 1 << 20)
        assert batch is not None
        opened = [orjson.loads(payload)["open"] for payload in batch.payloads]
        return [{name: value[1] for name, value in each.items()} for each in opened]

    async def decisions(self) -> list[tuple[str, str]]:
        """Decision and path of each."""
        return [
            (each[0], each[2].removeprefix("rest://kb")) for each in await self.sidecar.decisions()
        ]


@asynccontextmanager
async def standing(tmp_path: Path, way: str) -> AsyncIterator[Stand]:
    async with lending(authority().server("127.0.0.1")) as library:
        configured = source(library.port, writes="allow")
        if way == "listen_tls":
            configured = replace(
                configured,
                upstream=f"https://127.0.0.1:{library.tls_port}",
                tls=UpstreamTls(ca=authority().path),
                listen_tls=authority().issue("127.0.0.1"),
            )
        async with (
            sidecar(tmp_path, READERS) as made,
            listening(made, configured, _LIMITS) as port,
        ):
            yield Stand(way, library, made, port)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment with these, and of all others that concern proxies and trust with none."""
    with contextlib.ExitStack() as stack:
        for name in (*_PROXIES, *map(str.upper, _PROXIES), *_TRUST):
            before = os.environ.pop(name, None)
            if before is not None:
                stack.callback(os.environ.__setitem__, name, before)
            elif name in changes:
                stack.callback(os.environ.pop, name, None)
            if name in changes:
                os.environ[name] = changes[name]
        yield
