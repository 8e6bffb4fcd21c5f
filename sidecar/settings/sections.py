"""The sections of a sidecar's settings for the spool, for check doors and for AuthZEN, with a
sentence per field. Knows no files and no YAML."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from policies.definitions.model import Sensitivity
from policies.ground.addresses import ListenAddress

SpoolMode = Literal["durable", "strict", "best_effort"]
"""The modes of the spool, which differ in when a response is sent, relative to its record
(`FORMAT.md`, Enforcement points)."""

MIN_SEGMENT_BYTES = 1024 * 1024
MIN_MEMORY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Where records wait for the control API, and what happens when one can't be stored."""

    dir: Path
    """The directory of the spool; one sidecar alone uses it, and creates it with mode 0700 if it
    does not exist."""
    mode: SpoolMode = "durable"
    """`durable` responds once the record is on disk; `strict` does too, but responds 503 after
    `timeout_ms`; `best_effort` responds at once, and counts and reports records that it loses."""
    max_bytes: int = 1024 * 1024 * 1024
    """The most bytes that the directory's segments may take, prepared ones included; when they
    are full, only denials are recorded, in space reserved for them, and then requests fail."""
    segment_bytes: int = 8 * 1024 * 1024
    """The size of one segment file, at least 1 MiB (1048576), zero-filled in advance; two are kept
    ready, and the end of the last one, at least an eighth of it, is reserved for denials."""
    timeout_ms: int = 250
    """How long a record may take to reach the disk in mode `strict`."""
    memory_bytes: int = 16 * 1024 * 1024
    """The most bytes of records that may wait in memory for the disk; beyond that requests fail
    or, in mode `best_effort`, records are lost and counted."""

    def complaints(self) -> dict[str, str]:
        """Return a sentence about each setting that can't be used, by its key."""
        found = {}
        minima = {
            "segment_bytes": MIN_SEGMENT_BYTES,
            "timeout_ms": 1,
            "memory_bytes": MIN_MEMORY_BYTES,
        }
        for key, least in minima.items():
            if getattr(self, key) < least:
                found[key] = f"`{key}` is `{getattr(self, key)}`; the minimum is {least}"
        if self.max_bytes < 3 * self.segment_bytes:
            found["max_bytes"] = (
                f"`max_bytes` is `{self.max_bytes}`; it must hold three segments of "
                f"{self.segment_bytes} bytes: one in use and two ready"
            )
        return found


DoorProtocol = Literal["envoy_http", "envoy_grpc", "forward_auth"]

DoorKey = Literal["required", "none"]

RequestFrom = Literal["forwarded", "original"]


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


Scalar = str | int | float | bool | None
"""A JSON scalar."""


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """How a resource of the request becomes a source. The first rule that matches holds."""

    type: str
    """The `type` of the resources that it matches."""
    id: str = "*"
    """The pattern of their ids, by default of all: `*` is any run of characters, `?` exactly
    one."""
    when: Mapping[str, Scalar] = field(default_factory=dict)
    """Members that the resource's `properties` must have, each with a scalar of the same type and
    value; a member that is missing does not match."""
    source_id: str | None = None
    """The source id that policies use, with `{type}` and `{id}` filled in; by default the `id` of a
    resource of the type `source`, and `<type>://<id>` of any other."""
    sensitivity: Sensitivity | None = None
    """The sensitivity of what it matches, which a property of the resource can only raise; without
    either it is `critical`."""


@dataclass(frozen=True, slots=True)
class ActionRule:
    """An action that counts as reading. The first rule that matches holds."""

    name: str
    """The `name` of the action that it matches."""
    when: Mapping[str, Scalar] = field(default_factory=dict)
    """Members that the action's `properties` must have, each with a scalar of the same type and
    value; a member that is missing does not match."""
    task: str | None = None
    """The task that policies judge by `allowed_tasks` and `denied_tasks`; without it, the request
    may name one."""


READING = (
    "read",
    "retrieve",
    "get",
    "list",
    "search",
    "query",
    "fetch",
    "view",
    "can_read",
    "can_view",
    "GET",
    "HEAD",
    "tools/call",
    "resources/read",
    "prompts/get",
)
"""The actions that count as reading unless the operator lists others."""


@dataclass(frozen=True, slots=True)
class AuthzenSettings:
    """How requests of the AuthZEN API are mapped to retrievals, and what its metadata says."""

    url: str | None = None
    """The address of this decision point as its clients know it, such as `https://pdp.example.com`;
    without it there is no metadata."""
    signing_key_file: Path | None = None
    """A file with the private key that signs the metadata, Ed25519 or P-256, as unencrypted PEM
    (PKCS 8); without it the metadata is not signed, and there is no key set."""
    subject_types: tuple[str, ...] = ("agent",)
    """The types of subjects whose id is an `agent_id`."""
    role_property: str = "role"
    """The member of the subject's `properties` that names its role."""
    resources: tuple[ResourceRule, ...] = ()
    """Which source a resource is, and how sensitive; the first rule that matches holds."""
    actions: tuple[ActionRule, ...] = tuple(map(ActionRule, READING))
    """The actions that may be allowed, since they count as reading; any other is denied. A list
    replaces the default: `read`, `retrieve`, `get`, `list`, `search`, `query`, `fetch`, `view`,
    `can_read`, `can_view`, `GET`, `HEAD`, `tools/call`, `resources/read` and `prompts/get`."""
