"""The settings for check doors, with a sentence per field. Knows no files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from policies.ground.addresses import ListenAddress

DoorProtocol = Literal["envoy_http", "envoy_grpc", "forward_auth"]
DOOR_PROTOCOLS: tuple[DoorProtocol, ...] = get_args(DoorProtocol)

DoorKey = Literal["required", "none"]
DOOR_KEYS: tuple[DoorKey, ...] = get_args(DoorKey)

RequestFrom = Literal["forwarded", "original"]
REQUEST_FROM: tuple[RequestFrom, ...] = get_args(RequestFrom)


@dataclass(frozen=True, slots=True)
class DoorAgent:
    """The agent that speaks through a door."""

    id: str | None
    """Its registered `agent_id`; leave it out if the tenant has no agent registry."""
    role: str
    """The role that it acts in."""


@dataclass(frozen=True, slots=True)
class DoorHeaders:
    """The headers of a checked request that say whom it is for. They attribute, and never widen."""

    user: str = "x-sluice-user"
    """The header with the user."""
    session: str = "x-sluice-session"
    """The header with the session."""
    task: str = "x-sluice-task"
    """The header with the type of task."""


@dataclass(frozen=True, slots=True)
class DoorTls:
    """The certificate with which a door serves TLS, and whose clients it accepts, as PEM files."""

    certificate: Path
    """The file with the certificate and its chain."""
    key: Path
    """The file with its private key, unencrypted."""
    client_ca: Path | None = None
    """A file with certificate authorities; only a client with a certificate of one is served."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where one gateway asks whether a request to one data source may pass."""

    name: str
    """The door's name: the last part of its path, `/v1/check/<name>`, and the `source_type` of its
    events."""
    protocol: DoorProtocol
    """How the gateway asks: `envoy_http`, `envoy_grpc` or `forward_auth`."""
    source: str
    """The alias of the source that the requests are for; it needs no `listen` of its own."""
    listen: ListenAddress | None = None
    """The address that serves this door alone; by default the sidecar's `listen`. Required for
    `envoy_grpc`."""
    listen_tls: DoorTls | None = None
    """The certificate with which `listen` serves TLS; without one it serves plain HTTP."""
    key: DoorKey = "required"
    """`required`: each check carries an API key. `none`: the key in `agent.key_file` is used, so
    `listen` must be on loopback or have a `client_ca`."""
    agent: DoorAgent | None = None
    """The agent that speaks through this door; by default the one that the key is tied to. Required
    with `key: none`."""
    request_from: RequestFrom = "forwarded"
    """For `forward_auth`, which family of headers holds the request: `forwarded` or `original`."""
    headers: DoorHeaders = field(default_factory=DoorHeaders)
    """The headers that say whom a request is for."""
