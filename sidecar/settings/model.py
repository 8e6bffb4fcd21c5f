"""What an operator may set for a sidecar, one sentence a field. Knows nothing of files or YAML.

`sidecar.config.file` reads these from the one file of section 5 of the contract.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from policies.ground.listen_address import ListenAddress
from policies.ground.redis_url import RedisUrl
from sidecar.settings.spool import SpoolSettings

KINDS = (
    "bedrock",
    "chroma",
    "mcp",
    "opensearch",
    "pinecone",
    "qdrant",
    "rest",
    "s3",
    "tcp",
    "weaviate",
)
"""The data-source protocols that this sidecar speaks; `tcp` is any, decided once a connection."""

AWS_KINDS = ("bedrock", "s3")
"""Those whose requests the sidecar signs with AWS credentials of its own."""

ROUTE_CLASSES = ("retrieve", "write", "metadata", "deny")

MODES = ("enforce", "report")

COMPRESS = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class NamedSource:
    """What policies call one of a source's names, and how sensitive it is."""

    source_id: str
    """The plain name that policies use in place of `<kind>://<alias>/…`."""
    sensitivity: str
    """The level of this name; the source's own where none is given."""


@dataclass(frozen=True, slots=True)
class RestRule:
    """A rule that classes requests of a `rest` source; the first that matches wins."""

    method: str
    """The method it matches, or `*` for all."""
    path: str
    """The canonical path it matches; `{name}` is one segment, `**` any number."""
    class_: str
    """What a matching request does: `retrieve`, `write`, `metadata` or `deny`."""
    source_id: str | None = None
    """The source that it asks for, with `{name}` filled in; by default `rest://<alias><path>`."""
    sensitivity: str | None = None
    """The level of what it matches; the source's own where none is given."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Who and what a proxied request is for where neither a header nor baggage says."""

    user: str | None = None
    """The user on whose behalf the agent acts."""
    session: str | None = None
    """The session that the retrievals belong to."""
    task: str | None = None
    """The task type."""


@dataclass(frozen=True, slots=True)
class Aws:
    """The sidecar's own AWS credentials for one source; what is absent is found as botocore finds
    it: environment, files, container, instance."""

    region: str | None = None
    """The region that requests are signed for."""
    profile: str | None = None
    """The profile of AWS's configuration files."""
    credentials_file: Path | None = None
    """A file in the form of `~/.aws/credentials`; written anew, it is read within a minute."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate of ours, PEM."""

    certificate: Path
    """The file with the certificate and those that lead to its authority."""
    key: Path
    """The file with its private key, not encrypted."""


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """How a server, a data source or the control API, is spoken to over TLS. Verification can't be
    switched off."""

    ca: Path | None = None
    """A file with the authorities it is verified by; the system's where none is given."""
    certificate: Path | None = None
    """A file with the certificate that we show, where it asks for one."""
    key: Path | None = None
    """The file with that certificate's private key, not encrypted."""
    server_name: str | None = None
    """The name that it is verified by, where that is not the one in its address."""


@dataclass(frozen=True, slots=True)
class Source:
    """One data source, and the ways that lead to it."""

    alias: str
    """The source's name in `source_id`; it never comes from the request."""
    kind: str
    """The protocol it speaks: `bedrock`, `chroma`, `mcp`, `opensearch`, `pinecone`, `qdrant`,
    `rest`, `s3`, `weaviate`, or `tcp` for any other, which is decided once a connection."""
    upstream: str
    """The data source's address, `http://host:port` or `https://…`, an optional path prefix; of
    the kind `tcp`, `tcp://host:port`."""
    listen: ListenAddress | None
    """Where the agent finds it: the client only changes its port. Several sources may share one,
    told apart by `hosts` or `path`."""
    sensitivity: str
    """The level of everything that no name or route covers: `low`, `medium`, `high` or
    `critical`."""
    writes: str = "deny"
    """Whether writes pass: `deny` or `allow`."""
    mode: str = "enforce"
    """`enforce`, or `report`: what would be denied is recorded as that, counted, and forwarded."""
    names: Mapping[str, NamedSource] = field(default_factory=dict)
    """Plain names and levels for source ids, such as `chroma://kb/default/contracts`."""
    routes: tuple[RestRule, ...] = ()
    """How requests of a `rest` source are classed; GET and HEAD retrieve where none matches."""
    defaults: Defaults = field(default_factory=Defaults)
    """User, session and task of requests that name none."""
    endpoint: str = "/mcp"
    """The one path of an `mcp` source."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """For each tool of an `mcp` source, the argument that names what is read, such as
    `filter.collection`: then that is judged too, as `mcp://<alias>/data/<name>`."""
    sensitivity_field: str | None = None
    """The field of a document's metadata that holds its level, such as `acl.level`; each document
    is then judged at its own level."""
    hosts: tuple[str, ...] = ()
    """The names that agents know it by: `name` or `*.name` for all below it, either with a port."""
    path: str | None = None
    """The path below which it is found on its `listen`; it is taken off before anything is judged
    or forwarded."""
    aws: Aws = field(default_factory=Aws)
    """The credentials that requests of a `bedrock` or `s3` source are signed with."""
    addresses: tuple[str, ...] = ()
    """The networks, as CIDR, that the name in `upstream` may resolve to though they are not
    public."""
    tls: UpstreamTls = field(default_factory=UpstreamTls)
    """How an `https` upstream is verified, and what it is shown."""
    listen_tls: Pair | None = None
    """The certificate by which `listen` speaks TLS; without one it speaks plain HTTP."""
    terminate: Pair | None = None
    """The certificate by which TLS to this source ends here, in a tunnel or redirected, so that
    each request in it is judged; without one it is decided once and passed on unread."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent that speaks through the proxy listeners."""

    id: str | None
    """Its registered `agent_id`; absent where the tenant does without a registry."""
    role: str
    """The role it acts in."""
    key_file: Path
    """A file with its API key, of scope `evaluate`: its requests through the proxy carry none."""


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Everything a sidecar is told."""

    id: str
    """What the audit trail calls this sidecar; the host's name by default."""
    control: str
    """The control API's address, such as `http://127.0.0.1:8700`."""
    control_tls: UpstreamTls
    """How a control API at `https://` is verified, and what it is shown."""
    redis: RedisUrl | None
    """Where the policy set comes from: `redis://`, `rediss://`, or `redis+cluster://` with several
    `host:port`; without it, from `control` by long poll."""
    compress: str
    """Whether records are shipped compressed: `auto` where `control` is not this host, `always` or
    `never`."""
    key_file: Path
    """A file with the sidecar's own API key, of scope `sidecar`."""
    listen: ListenAddress
    """Where `/v1/context/evaluate`, `/health`, `/health/ready` and `/metrics` are served."""
    metrics_listen: ListenAddress | None
    """A port of its own for `/metrics`, which then leaves `listen`."""
    cache: Path
    """The directory of the policy set's copy on disk."""
    staleness_seconds: float
    """How old the policy set may be, from 1 to 86400; past it every decision is
    `policy_set_stale`."""
    drain_seconds: float
    """How long requests under way may take to finish once the sidecar is told to stop."""
    spool: SpoolSettings
    """Where records wait until the control API has them, and what happens when they can't."""
    agent: AgentSettings | None
    """Who speaks through the proxy listeners; needed as soon as there is a source."""
    sources: tuple[Source, ...]
    """The data sources behind this sidecar."""
    forward_proxy: ListenAddress | None = None
    """Where agents find the HTTP forward proxy, as `HTTP_PROXY` and `HTTPS_PROXY` name it."""
    transparent: ListenAddress | None = None
    """Where connections arrive that the packet filter redirects (REDIRECT)."""
    encrypted_hello: str = "deny"
    """Whether TLS that is passed on unread may hide the server's name behind another one: `deny` or
    `allow`."""

    @property
    def compresses(self) -> bool:
        """What `compress` comes to."""
        return self.compress == "always" or (self.compress == "auto" and not self.control_is_here)

    @property
    def control_is_here(self) -> bool:
        """Whether the control API runs on this host."""
        return urlsplit(self.control).hostname in ("localhost", "127.0.0.1", "::1")
