"""The settings of `sluice up`, each with its meaning. Opens no file and no port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit


class Address(NamedTuple):
    """A host and a port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnusableSettings(Exception):
    """settings that can't be used; the message has one complaint per line"""


ENVIRONMENT = {
    "data_dir": "SLUICE_DATA_DIR",
    "control_listen": "SLUICE_CONTROL_LISTEN",
    "sidecar_listen": "SLUICE_SIDECAR_LISTEN",
    "source_listen": "SLUICE_UP_SOURCE_LISTEN",
    "chroma_listen": "SLUICE_UP_CHROMA_LISTEN",
    "milvus_source_listen": "SLUICE_UP_MILVUS_SOURCE_LISTEN",
    "milvus_listen": "SLUICE_UP_MILVUS_LISTEN",
    "postgres_source_listen": "SLUICE_UP_POSTGRES_SOURCE_LISTEN",
    "postgres_listen": "SLUICE_UP_POSTGRES_LISTEN",
}
"""The environment variable of each setting. A setting that a service has too uses that service's
variable."""

MEANINGS = {
    "data_dir": "the directory of database, spool, keys, samples and logs",
    "control_listen": "the control API's address",
    "sidecar_listen": "the sidecar's address",
    "source_listen": "the sample data source as agents see it, behind the sidecar",
    "chroma_listen": "the sample data source itself",
    "milvus_source_listen": "with --milvus: the sample Milvus as agents see it, behind the sidecar",
    "milvus_listen": "with --milvus: the sample Milvus itself",
    "postgres_source_listen": "with --postgres: the sample PostgreSQL as agents see it, behind the "
    "sidecar",
    "postgres_listen": "with --postgres: the sample PostgreSQL itself, on loopback",
}
"""The help text of each setting in `sluice up --help`."""

TLS = ("SLUICE_TLS_CERTIFICATE", "SLUICE_TLS_KEY", "SLUICE_TLS_CLIENT_CA")
"""The TLS settings of the control API. `sluice up` refuses them, because the launcher and its
sidecar could not verify the certificate."""

DATA_DIR = ".sluice"
PORTS = {
    "control_listen": 8700,
    "sidecar_listen": 8710,
    "source_listen": 18000,
    "chroma_listen": 8000,
    "milvus_source_listen": 29530,
    "milvus_listen": 19530,
    "postgres_source_listen": 15432,
    "postgres_listen": 25432,  # a PostgreSQL of the machine's own may have 5432
}
ONLY_WITH = {
    "milvus_source_listen": "--milvus",
    "milvus_listen": "--milvus",
    "postgres_source_listen": "--postgres",
    "postgres_listen": "--postgres",
}
"""The settings that count only with another option."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The launcher's settings. Port 0 in an address stands for a free port."""

    data_dir: Path
    """The directory of all data: database, spool, keys, samples, logs."""
    control_listen: Address
    """The address of the control API."""
    sidecar_listen: Address
    """The address at which the sidecar serves `/v1/context/evaluate`."""
    source_listen: Address
    """The address at which agents reach the sample data source, behind the sidecar."""
    chroma_listen: Address
    """The address of the sample data source itself."""
    milvus_source_listen: Address | None = None
    """The address at which agents reach the sample Milvus, behind the sidecar. None, as
    `milvus_listen`, if there is no Milvus."""
    milvus_listen: Address | None = None
    """The address of the sample Milvus itself."""
    postgres_source_listen: Address | None = None
    """The address at which agents reach the sample PostgreSQL, behind the sidecar. None, as
    `postgres_listen`, if there is no PostgreSQL."""
    postgres_listen: Address | None = None
    """The address of the sample PostgreSQL itself."""

    def addresses(self) -> dict[str, Address]:
        """Return the addresses to listen on, by the names of their fields."""
        return {
            field.name: value
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Address)
        }


def read(
    options: Mapping[str, str | None],
    environ: Mapping[str, str],
    *,
    free_ports: bool = False,
    milvus: bool = False,
    postgres: bool = False,
) -> UpSettings:
    """Read each setting from its option, else from the environment, else use the default. With
    `free_ports`, an address whose option is not given gets port 0, which stands for a free port.
    Without `milvus`, its two addresses are None, and so are those of `postgres`. Raises
    `UnusableSettings` with every complaint."""
    # An empty variable counts as absent.
    given = {name: options.get(name) or environ.get(ENVIRONMENT[name]) for name in ENVIRONMENT}
    chosen = {"--milvus": milvus, "--postgres": postgres}
    complaints: list[str] = []
    addresses: dict[str, Address] = {}
    for name, port in PORTS.items():
        if (only_with := ONLY_WITH.get(name)) and not chosen[only_with]:
            # A variable may be set for every run, but an option is meant for this one.
            if options.get(name):
                complaints.append(f"{option(name)} is of use only with {only_with}")
            continue
        text = given[name] or f"127.0.0.1:{port}"
        if address := _address(text):
            choose = free_ports and not options.get(name)
            addresses[name] = Address(address.host, 0) if choose else address
        else:
            complaints.append(
                f"{option(name)} ({ENVIRONMENT[name]}): `{text}` must be HOST:PORT, such as "
                f"127.0.0.1:{port}"
            )
    for name in TLS:
        if environ.get(name):
            complaints.append(f"{name}: `sluice up` runs over plain HTTP; unset the variable")
    if complaints:
        raise UnusableSettings("\n".join(complaints))
    return UpSettings(Path(given["data_dir"] or DATA_DIR).expanduser().absolute(), **addresses)


def option(name: str) -> str:
    """Return the name of a setting's command-line option: `--control-listen` for
    `control_listen`."""
    return f"--{name.replace('_', '-')}"


def _address(text: str) -> Address | None:
    try:
        parts = urlsplit(f"//{text}")
        # Compare the whole text: a user, a path or a query would otherwise be dropped silently.
        # `*` is for services in containers: the launcher's children listen on one address each.
        named = parts.hostname if parts.hostname != "*" else None
        if parts.netloc == text and named and parts.port is not None:
            return Address(named, parts.port)
    except ValueError:
        return None  # the port is not a number up to 65535, or the brackets don't match
    return None
