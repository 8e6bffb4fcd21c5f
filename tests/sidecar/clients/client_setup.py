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

from policies.ground.addresses import ListenAddress
from sidecar.proxy.assembly import FORWARD_PROXY, NO_NAMED_PORTS, ProxyPorts
from sidecar.proxy.limits import LIMITS
from sidecar.settings.model import Source, UpstreamTls
from tests.sidecar.clients.library import Library, lending
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, policy, sidecar, source, warm

WAYS = ("listen", "absolute", "opened")
"""`listen`: the client's address is the sidecar's. `absolute`: the client's address is the
library's, and `http_proxy` the sidecar. `opened`: the same with TLS on both sides, in a tunnel that
the sidecar opens."""

ALL_WAYS = (*WAYS, "listen_tls")
"""`listen_tls`: as `listen`, with TLS on both sides. To a client that is half of `opened`, so only
one family goes that way."""

_OVER_TLS = ("listen_tls", "opened")
_BY_PROXY = ("absolute", "opened")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
# Node goes by the others only where this says so.
_NODE = "NODE_USE_ENV_PROXY"

# A client that closes without having heard anything is at first like one that has only ended its
# request: it is waited for, but not as long here.
# expires on purpose
_LIMITS = replace(LIMITS, half_close_seconds=0.1)

READERS = policy(denied_sources=("rest://kb/shut", "rest://kb/shut/*"))
"""Everything may be read but what is below `/shut`."""


@dataclass
class ClientSetup:
    """The library, the sidecar before it, and the port on which this way begins."""

    way: str
    library: Library
    sidecar: Sidecar
    port: int

    @property
    def over_tls(self) -> bool:
        return self.way in _OVER_TLS

    @property
    def origin(self) -> int:
        """The library's port that is meant on this way."""
        return self.library.tls_port if self.way in _OVER_TLS else self.library.port

    @contextmanager
    def directly(self, port: int | None = None) -> Iterator[str]:
        """The library's own address, with nothing in the environment that leads elsewhere. A
        `port`, here as below, stands before the one that is meant."""
        with _environment(self._trust()):
            yield self._at(port or self.origin)

    @contextmanager
    def through(self, port: int | None = None) -> Iterator[str]:
        """The address to use on this way, in the environment that goes with it."""
        port = port or self.port
        if self.way not in _BY_PROXY:
            with _environment(self._trust()):
                yield self._at(port)
            return
        proxy = f"http://127.0.0.1:{port}"
        proxies = {"http_proxy": proxy, "https_proxy": proxy, "HTTP_PROXY": proxy, _NODE: "1"}
        with _environment({**self._trust(), **proxies}):
            yield self._at(self.origin)

    @property
    def scheme(self) -> str:
        return "https" if self.way in _OVER_TLS else "http"

    def _at(self, port: int) -> str:
        return f"{self.scheme}://localhost:{port}"

    def _trust(self) -> dict[str, str]:
        return dict.fromkeys(_TRUST, str(authority().path)) if self.way in _OVER_TLS else {}

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
async def client_setup(tmp_path: Path, way: str) -> AsyncIterator[ClientSetup]:
    tls = authority().server("localhost")
    async with lending(tls) as library, sidecar(tmp_path, READERS) as made:
        named = ProxyPorts(ListenAddress("127.0.0.1", 0)) if way in _BY_PROXY else NO_NAMED_PORTS
        sources = (configured(library, way),)
        proxy = made.proxy(sources, limits=_LIMITS, named=named)
        await proxy.start()
        await warm(proxy)
        try:
            port = proxy.port(FORWARD_PROXY if way in _BY_PROXY else "kb")
            yield ClientSetup(way, library, made, port)
        finally:
            await proxy.close(1)


def configured(library: Library, way: str) -> Source:
    """The library as a source that this way leads to."""
    plain = replace(source(library.port), upstream=f"http://localhost:{library.port}")
    listen = None if way in _BY_PROXY else plain.listen
    plain = replace(plain, writes="allow", listen=listen)
    if way not in _OVER_TLS:
        return plain
    ours = authority().issue("localhost")
    return replace(
        plain,
        upstream=f"https://localhost:{library.tls_port}",
        tls=UpstreamTls(ca=authority().path),
        listen_tls=None if way in _BY_PROXY else ours,
        terminate=ours if way in _BY_PROXY else None,
    )


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment with these, and of all others that concern proxies and trust with none."""
    with contextlib.ExitStack() as stack:
        for name in (*_PROXIES, *map(str.upper, _PROXIES), *_TRUST, _NODE):
            before = os.environ.pop(name, None)
            if before is not None:
                stack.callback(os.environ.__setitem__, name, before)
            elif name in changes:
                stack.callback(os.environ.pop, name, None)
            if name in changes:
                os.environ[name] = changes[name]
        yield
