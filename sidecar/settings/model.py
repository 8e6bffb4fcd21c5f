"""The settings of a sidecar, with a sentence per field. Knows no files and no YAML.

`sidecar.config.file` fills these from the settings file (`CONTRACT.md`, Settings). The sentences
appear in `sluice sidecar --help` and in the example file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from policies.definitions.model import Sensitivity
from policies.ground.addresses import ListenAddress, RedisUrl
from sidecar.settings.postgres import AllowedFunctions, Login, RelationRule, ResultLimits
from sidecar.settings.sections import AuthzenSettings, Door, SpoolSettings

# Each set of values is written once: mypy uses the type, and the settings file's check the tuple.
Kind = Literal[
    "bedrock", "chroma", "mcp", "milvus", "opensearch", "pinecone", "postgres", "qdrant", "rest",
    "s3", "tcp", "weaviate",
]  # fmt: skip
"""The kinds of data sources, which are the protocols that this sidecar speaks. `tcp` stands for any
other protocol, whose connections are decided as a whole."""
KINDS: tuple[Kind, ...] = get_args(Kind)

UNREAD_KINDS: tuple[Kind, ...] = ("postgres", "tcp")
"""The kinds whose connections never carry HTTP, and whose server may speak first."""

AWS_KINDS: tuple[Kind, ...] = ("bedrock", "s3")
"""The kinds whose requests the sidecar signs with its own AWS credentials."""

GRPC_KINDS = ("milvus", "pinecone", "qdrant", "weaviate")
"""The kinds of data sources that also answer gRPC, whose calls the sidecar can read."""
ONE_PORT_KINDS = ("milvus", "pinecone")
"""Those of `GRPC_KINDS` that answer it at the port of `upstream`, so that they need no `grpc`."""

RestRouteClass = Literal["retrieve", "write", "metadata", "deny"]
VendorClass = Literal["retrieve", "write", "metadata"]
SourceMode = Literal["enforce", "report"]
PathReading = Literal["strict", "opaque"]
TrailerHandling = Literal["drop", "forward"]
Permission = Literal["deny", "allow"]
Switch = Literal["on", "off"]
HalfClose = Literal["cancel", "wait"]
HttpVersion = Literal["auto", "1", "2"]
HTTP_VERSIONS: tuple[HttpVersion, ...] = get_args(HttpVersion)
Compression = Literal["auto", "always", "never"]

DEFAULT_CONNECTIONS = 1000
DEFAULT_LISTEN = ListenAddress("127.0.0.1", 8710)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """How policies refer to one name in a source, and how sensitive it is."""

    source_id: str
    """The plain name that policies use instead of `<kind>://<alias>/…`."""
    sensitivity: Sensitivity
    """The sensitivity of this name; by default the source's."""


@dataclass(frozen=True, slots=True)
class RestRule:
    """A rule that classifies requests of a `rest` source; the first match wins."""

    method: str
    """The method that it matches, or `*` for all."""
    path: str
    """The canonical path that it matches; `{name}` is one segment, `**` any number."""
    class_: RestRouteClass
    """What a matching request does: `retrieve`, `write`, `metadata` or `deny`."""
    source_id: str | None = None
    """The source id that a matching request retrieves, with `{name}` filled in; by default
    `rest://<alias><path>`."""
    sensitivity: Sensitivity | None = None
    """The sensitivity of what it matches; by default the source's."""


@dataclass(frozen=True, slots=True)
class VendorMethod:
    """A method of an MCP server that the protocol doesn't have. It is judged as
    `mcp://<alias>/method/<name>`."""

    name: str
    """The method, exactly as in messages, such as `com.example/search`."""
    class_: VendorClass = "retrieve"
    """What it does: `retrieve`, `write` or `metadata`."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Attribution of proxied requests that name no user, session or task themselves."""

    user: str | None = None
    """The user on whose behalf the agent acts."""
    session: str | None = None
    """The session that the retrievals belong to."""
    task: str | None = None
    """The type of task."""


@dataclass(frozen=True, slots=True)
class Aws:
    """The sidecar's own AWS credentials for one source. botocore finds what is not set here: in the
    environment, files, the container or the instance."""

    region: str | None = None
    """The region that requests are signed for."""
    profile: str | None = None
    """The profile in AWS's configuration files."""
    credentials_file: Path | None = None
    """A file in the format of `~/.aws/credentials`; changes take effect within a minute."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate that the sidecar serves, as PEM files."""

    certificate: Path
    """The file with the certificate and its chain."""
    key: Path
    """The file with its private key, unencrypted."""


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS to a server, a data source or the control API. Verification can't be switched off."""

    ca: Path | str | None = None
    """A file with the certificate authorities to trust, or its text; by default the system's."""
    certificate: Path | None = None
    """A file with the client certificate to present when the server asks for one."""
    key: Path | None = None
    """A file with that certificate's private key, unencrypted."""
    server_name: str | None = None
    """The name that the server's certificate must match; by default the host in its address."""


@dataclass(frozen=True, slots=True)
class NoTls(UpstreamTls):
    """No TLS, which the settings have to say (`tls: off`)."""


@dataclass(frozen=True, slots=True)
class Source:
    """One data source, and how agents reach it."""

    alias: str
    """The source's name in a `source_id`; it never comes from the request."""
    kind: Kind
    """The protocol that it speaks: `bedrock`, `chroma`, `mcp`, `milvus`, `opensearch`, `pinecone`,
    `postgres`, `qdrant`, `rest`, `s3`, `weaviate`, or `tcp` for any other, decided as a whole."""
    upstream: str
    """The data source's address: `http://host:port` or `https://host:port`, with an optional path
    prefix; for `tcp`, `tcp://host:port`; for `postgres`, `postgres://host:port/database`."""
    listen: ListenAddress | None
    """The address where agents reach it; a client only changes its port. Sources may share an
    address if `hosts` or `path` distinguishes them. It serves gRPC too."""
    sensitivity: Sensitivity
    """The sensitivity of everything that no name or route covers: `low`, `medium`, `high` or
    `critical`."""
    grpc: str | None = None
    """The address to which calls of gRPC are sent: `http://host:port` or `https://host:port`. A
    `milvus` or `pinecone` source answers them at `upstream`; a `qdrant` or `weaviate` source needs
    it."""
    grpc_listen: ListenAddress | None = None
    """Another address where agents reach it, for clients that expect gRPC on a port of its own. No
    other source has it, and `path` doesn't apply there."""
    writes: Permission = "deny"
    """Whether writes are forwarded: `deny` or `allow`."""
    mode: SourceMode = "enforce"
    """`enforce`, or `report`: denied requests are recorded and counted as denied, but forwarded."""
    names: Mapping[str, NamedSource] = field(default_factory=dict)
    """Plain names and sensitivities for source ids such as `chroma://kb/default/contracts`."""
    routes: tuple[RestRule, ...] = ()
    """How requests of a `rest` source are classified; without a match, GET and HEAD retrieve."""
    paths: PathReading = "strict"
    """How an escaped slash in the path of a `rest` source is read: `strict` refuses it; with
    `opaque` it is part of its segment, judged and forwarded as `%2F`. Only for a data source that
    reads it so too."""
    trailers: TrailerHandling = "drop"
    """What becomes of the fields behind a chunked body, in both directions, at a `rest` source:
    `drop`; or `forward`, for APIs that need them, but for names that could change how a message is
    read, which fail it."""
    defaults: Defaults = field(default_factory=Defaults)
    """The user, session and task of requests that name none."""
    endpoint: str = "/mcp"
    """The single path of an `mcp` source."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """For each tool of an `mcp` source, the argument that names the data it reads, such as
    `filter.collection`; that name is then judged too, as `mcp://<alias>/data/<name>`."""
    methods: tuple[VendorMethod, ...] = ()
    """The methods of an `mcp` source that are allowed besides the protocol's own; each is judged as
    `mcp://<alias>/method/<name>`."""
    sse: Switch = "off"
    """Whether an `mcp` source also has the older transport (HTTP+SSE) at `/sse`: `on` or `off`."""
    sensitivity_field: str | None = None
    """The metadata field that holds a document's sensitivity, such as `acl.level`; each document
    is then judged by its own."""
    hosts: tuple[str, ...] = ()
    """The host names under which agents reach it: `name`, or `*.name` for every name below it,
    each with an optional port; on its `listen`, besides those that the sidecar has."""
    path: str | None = None
    """The path prefix under which agents reach it on its `listen`; it is removed before a request
    is judged and forwarded."""
    exact_paths: tuple[str, ...] = ()
    """The single paths that lead to a `rest` source on its `listen`, in full: each is judged and
    forwarded as it is, and nothing below it leads there."""
    aws: Aws = field(default_factory=Aws)
    """The AWS credentials that sign the requests of a `bedrock` or `s3` source."""
    addresses: tuple[str, ...] = ()
    """The non-public networks, as CIDR, that the hosts in `upstream` and `grpc` may resolve to."""
    http: HttpVersion = "auto"
    """The version of HTTP that `upstream` speaks: `1`, `2`, or `auto`, which under TLS leaves it to
    the server, and otherwise is 1."""
    login: Login | None = None
    """The role with which the sidecar logs in at a `postgres` source, which must have it."""
    relations: tuple[RelationRule, ...] = ()
    """Plain names and levels of a `postgres` source's relations; the first that fits counts."""
    functions: AllowedFunctions = field(default_factory=AllowedFunctions)
    """The functions that statements to a `postgres` source may call besides the server's own."""
    result: ResultLimits = field(default_factory=ResultLimits)
    """How much a statement to a `postgres` source may return, and how long it may take."""
    tls: UpstreamTls = field(default_factory=UpstreamTls)
    """How a `postgres` source, or an `https` upstream or gRPC address, is verified, and which
    client certificate it gets; `off` at a `postgres` source speaks plain to it, as to loopback."""
    listen_tls: Pair | None = None
    """The certificate with which `listen` and `grpc_listen` serve TLS; without one they serve plain
    HTTP."""
    half_close: HalfClose = "cancel"
    """What the end of an agent's sending side means on `listen` and `grpc_listen` before its
    response begins: `cancel`, it is gone, and its request ends; `wait`, it gets its response, for
    up to 10 s."""
    terminate: Pair | None = None
    """The certificate with which the sidecar terminates TLS to this source, tunnelled or
    redirected, so that it judges each request; without one it decides once per connection and
    passes TLS on unread."""

    @property
    def grpc_url(self) -> str | None:
        """The URL to which calls of gRPC are sent, without a path; None if the source takes no
        calls."""
        if self.grpc is None and self.kind in ONE_PORT_KINDS:
            # A call names its method by the whole path (gRPC over HTTP/2, Requests): no prefix.
            return urlsplit(self.upstream)._replace(path="").geturl()
        return self.grpc

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the data source: `upstream`, then `grpc_url` if it differs."""
        grpc = self.grpc_url
        return (self.upstream,) if grpc in (None, self.upstream) else (self.upstream, grpc)

    @property
    def opaque(self) -> bool:
        """True if an escaped slash in a path is part of its segment."""
        return self.paths == "opaque"

    @property
    def forwards_trailers(self) -> bool:
        """True if the fields behind a chunked body are forwarded."""
        return self.trailers == "forward"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent whose requests arrive at the proxy listeners."""

    id: str | None
    """Its registered `agent_id`; leave it out if the tenant has no agent registry."""
    role: str
    """The role that it acts in."""
    key_file: Path
    """A file with its API key, of scope `evaluate`; proxied requests carry no key themselves. A key
    that is written to it is in use within a second."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where OpenTelemetry traces go, and how many."""

    endpoint: str
    """The OTLP collector's address, such as `http://127.0.0.1:4318`; spans go to `/v1/traces`
    there, as JSON."""
    sample_ratio: float = 0.01
    """The share of requests to trace, from 0 to 1, among those whose `traceparent` doesn't decide
    it."""
    tls: UpstreamTls = field(default_factory=UpstreamTls)
    """How a collector at `https://` is verified, and which client certificate it gets."""


@dataclass(frozen=True, slots=True)
class EnrolSettings:
    """Workload identity: the control API knows the pod by its ServiceAccount token."""

    token_file: Path
    """The projected token of the pod's service account, with the audience `sluice`; read at each
    renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """All settings of a sidecar."""

    id: str
    """The name of this sidecar in the audit trail; by default the host's name."""
    control: str
    """The control API's address, such as `http://127.0.0.1:8700`."""
    control_tls: UpstreamTls = field(default_factory=UpstreamTls)
    """How a control API at `https://` is verified, and which client certificate it gets."""
    redis: RedisUrl | None = None
    """The Redis that delivers the policy set: `redis://`, `rediss://`, or `redis+cluster://` with
    several `host:port`; without it, the sidecar long-polls `control`. Paths after its `?`
    are relative to the settings file."""
    compress: Compression = "auto"
    """Whether records are sent compressed: `always`, `never`, or `auto`, which compresses unless
    `control` is on this host."""
    key_file: Path | None = None
    """A file with the sidecar's own API key, of scope `sidecar`; required without `enrol`."""
    listen: ListenAddress = DEFAULT_LISTEN
    """The address that serves `/v1/context/evaluate`, `/health`, `/health/ready` and `/metrics`."""
    metrics_listen: ListenAddress | None = None
    """A separate address for `/metrics`, which `listen` then no longer serves."""
    cache: Path
    """The directory of the policy set's copy on disk."""
    staleness_seconds: float = 30.0
    """How old the policy set may be, from 1 to 86400; when it is older, every request is denied
    with `policy_set_stale`."""
    drain_seconds: float = 10.0
    """How long open requests may take to finish when the sidecar stops."""
    spool: SpoolSettings
    """Where records wait for the control API, and what happens when one can't be stored."""
    agent: AgentSettings | None = None
    """The agent whose requests arrive at the proxy listeners; required with `sources`, unless the
    sidecar enrols."""
    sources: tuple[Source, ...] = ()
    """The data sources behind this sidecar."""
    max_connections: int = DEFAULT_CONNECTIONS
    """The most connections to all of the sidecar's ports at once."""
    enrol: EnrolSettings | None = None
    """How the sidecar gets its keys and its agent by its pod's identity, instead of `key_file` and
    `agent`."""
    least_documents: Switch = "on"
    """Whether a sidecar that enrols is given only its own agent's documents and the tenant's.
    Redis holds all of them for every reader: with `redis` and `enrol`, only `off` is possible."""
    agent_file: Path | None = None
    """A file with keys of `agent`, such as `role`, which replace those in these settings."""
    sources_files: tuple[Path, ...] = ()
    """Files with a list `sources`; the first that exists replaces the list in these settings."""
    forward_proxy: ListenAddress | None = None
    """The address of the HTTP forward proxy, which agents set as `HTTP_PROXY` and `HTTPS_PROXY`."""
    transparent: ListenAddress | None = None
    """The address to which the packet filter redirects connections (REDIRECT)."""
    redirect_check_seconds: float = 0.0
    """How often to check that the rules of `sluice redirect` still lead connections to
    `transparent`; while they don't, the sidecar is not ready. 0 never checks."""
    quit_listen: ListenAddress | None = None
    """An address of loopback that serves `POST /quitquitquit`, which stops the sidecar."""
    hosts: tuple[str, ...] = ()
    """The names by which programs call this sidecar's ports, besides loopback's and their own
    address: `name`, or `*.name`, each with an optional port. Other hosts are refused."""
    listen_tls: Pair | None = None
    """The certificate with which `listen` serves TLS, for all that it serves; without one it serves
    plain HTTP."""
    half_close: HalfClose = "cancel"
    """The same for `forward_proxy` and `transparent` as `half_close` of a source for its `listen`:
    `cancel` or `wait`."""
    encrypted_hello: Permission = "deny"
    """Whether TLS that is passed on unread may encrypt the name of the server (ECH): `deny` or
    `allow`."""
    doors: tuple[Door, ...] = ()
    """Where gateways ask whether a request to a source may pass."""
    traces: TraceSettings | None = None
    """Where OpenTelemetry traces go, and how many; without it there are none."""
    authzen: AuthzenSettings = field(default_factory=AuthzenSettings)
    """How requests of the AuthZEN API are mapped to retrievals, and what its metadata says."""

    @property
    def given_least_documents(self) -> bool:
        """True if the sidecar's replica has only its own agent's documents and the tenant's."""
        return self.enrol is not None and self.redis is None

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """The host names by which clients call this sidecar: those in `hosts`, and the host of
        `authzen.url`."""
        public = None if self.authzen.url is None else urlsplit(self.authzen.url).hostname
        return self.hosts if public is None else (*self.hosts, public)

    @property
    def compresses(self) -> bool:
        """True if records are sent compressed; `auto` is resolved here."""
        return self.compress == "always" or (self.compress == "auto" and not self.control_is_here)

    @property
    def control_is_here(self) -> bool:
        """True if the address of the control API names this host."""
        return urlsplit(self.control).hostname in ("localhost", "127.0.0.1", "::1")
