"""Where `sluice up` puts everything, one sentence a field. Opens nothing."""

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
    """settings that can't be used; every complaint, a line each"""


ENVIRONMENT = {
    "data_dir": "SLUICE_DATA_DIR",
    "control_listen": "SLUICE_CONTROL_LISTEN",
    "sidecar_listen": "SLUICE_SIDECAR_LISTEN",
    "source_listen": "SLUICE_UP_SOURCE_LISTEN",
    "chroma_listen": "SLUICE_UP_CHROMA_LISTEN",
}
"""What each is called in the environment: a service's own name where it has one."""

MEANINGS = {
    "data_dir": "where database, spool, keys, samples and logs are kept",
    "control_listen": "the control API's address",
    "sidecar_listen": "the sidecar's address",
    "source_listen": "the sample data source as agents see it, behind the sidecar",
    "chroma_listen": "the sample data source itself",
}
"""What `sluice up --help` says of each."""

TLS = ("SLUICE_TLS_CERTIFICATE", "SLUICE_TLS_KEY", "SLUICE_TLS_CLIENT_CA")
"""The control API's: the launcher and its sidecar would have to be given an authority for it."""

DATA_DIR = ".sluice"
PORTS = {
    "control_listen": 8700,
    "sidecar_listen": 8710,
    "source_listen": 18000,
    "chroma_listen": 8000,
}


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The launcher's settings. A port 0 is replaced by a free one."""

    data_dir: Path
    """The directory of everything that is kept: database, spool, keys, samples, logs."""
    control_listen: Address
    """Where the control API listens."""
    sidecar_listen: Address
    """Where the sidecar answers `/v1/context/evaluate`."""
    source_listen: Address
    """Where agents find the sample data source, behind the sidecar."""
    chroma_listen: Address
    """Where the sample data source itself listens."""

    def addresses(self) -> dict[str, Address]:
        """The four that listen, by field."""
        return {
            field.name: value
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Address)
        }


def read(
    options: Mapping[str, str | None], environ: Mapping[str, str], *, free_ports: bool = False
) -> UpSettings:
    """An option, else the environment, else the default; `UnusableSettings` with every complaint.
    With
    `free_ports` an address that no option names gets a free port."""
    given = {name: options.get(name) or environ.get(ENVIRONMENT[name]) for name in ENVIRONMENT}
    complaints: list[str] = []
    addresses: dict[str, Address] = {}
    for name, port in PORTS.items():
        text = given[name] or f"127.0.0.1:{port}"
        if address := _address(text):
            choose = free_ports and not options.get(name)
            addresses[name] = Address(address.host, 0) if choose else address
        else:
            complaints.append(f"{option(name)} ({ENVIRONMENT[name]}): `{text}` is not host:port")
    for name in TLS:
        if environ.get(name):
            complaints.append(f"{name}: `sluice up` tries Sluice out over plain HTTP: unset it")
    if complaints:
        raise UnusableSettings("\n".join(complaints))
    return UpSettings(Path(given["data_dir"] or DATA_DIR).expanduser().absolute(), **addresses)


def option(name: str) -> str:
    """`control_listen` as it is typed: `--control-listen`."""
    return f"--{name.replace('_', '-')}"


def _address(text: str) -> Address | None:
    try:
        parts = urlsplit(f"//{text}")
        if parts.netloc == text and parts.hostname and parts.port is not None:
            return Address(parts.hostname, parts.port)
    except ValueError:
        return None  # a port that is no number, or beyond 65535; brackets that don't match
    return None
