"""Holds the control API's settings, with a description of each, which `--help` shows.

Reads a mapping, never the environment itself. Reports all complaints at once (`SettingsError`),
before any file is written or any port opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from control_api.checkpoint_store.location import StoreLocation
from control_api.database_limits import DatabaseLimits
from control_api.security.console_settings import (
    GroupGrants,
    OidcSettings,
    parse_authorities,
    parse_group_grants,
    parse_issuer,
    parse_origin,
    parse_scopes,
)
from control_api.security.egress import AllowedHosts, MailServer, WitnessAddress, parse_witnesses
from control_api.security.export_targets import ExportTarget, parse_targets
from control_api.security.issuers import Issuer
from control_api.settings_reader import ControlSettingsReader, default_database
from policies.ground.addresses import ListenAddress, RedisUrl
from policies.ground.connection_budget import DEFAULT_CONNECTIONS
from policies.ground.log_line import FORMATS, LEVELS
from policies.ground.process.settings_reader import PREFIX
from policies.ground.process.tls_files import TlsFiles
from policies.ground.settings import SettingsError


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds the control API's settings; each is `SLUICE_` and the field's name in capitals."""

    data_dir: Path
    """The directory of the SQLite file, the log's signing key and the first start's secrets."""
    database_url: str
    """The store: `sqlite+aiosqlite:///…` (the default, in the data directory) or
    `postgresql+asyncpg://…`."""
    redis_url: RedisUrl | None
    """The Redis that sidecars read policy sets from: `redis[s]://…` or `redis[s]+cluster://…`.
    Without it they poll the API."""
    database_connections: int
    """The most connections to PostgreSQL that a process keeps; each transaction uses one."""
    database_seconds: int
    """How long a statement on PostgreSQL may run before its request is answered 503."""
    database_pooled: bool
    """Whether a pooler in transaction mode, such as PgBouncer, stands before PostgreSQL."""
    listen_database_url: str | None
    """Where a process listens for other processes' changes, if a pooler in transaction mode stands
    before `SLUICE_DATABASE_URL`: the same database, reached directly. Without a pooler: that
    URL."""
    checkpoint_store: StoreLocation
    """Where signed checkpoints of the audit log are kept outside the database: `file:///directory`
    (default: `checkpoints/` in the data directory) or `s3://bucket/prefix`."""
    checkpoint_seconds: int
    """Seconds between two checkpoints of a log that grows."""
    witnesses: tuple[WitnessAddress, ...]
    """The witnesses that cosign checkpoints, separated by commas: `<verifier key>@<url>`, the URL
    https, or http on loopback."""
    witness_quorum: int
    """How many of them make a checkpoint `witnessed`; default: all."""
    start_seconds: int
    """How long a start retries if the database does not answer or refuses the connection."""
    workers: int
    """Processes that share the port; more than one needs PostgreSQL."""
    max_connections: int
    """The most connections to the API's port that a process has open at once."""
    control_listen: ListenAddress
    """Where the API listens; port 0 lets the system choose."""
    tls_certificate: Path | None
    """The API's certificate with its chain, PEM. With it the API serves HTTPS only. The three TLS
    files are reloaded when they change."""
    tls_key: Path | None
    """The private key of that certificate, PEM, not encrypted."""
    tls_client_ca: Path | None
    """The authorities of client certificates, PEM. With it every client must present one."""
    keys_dir: Path | None
    """A directory with keys made elsewhere, such as a mounted Kubernetes Secret: `log.key`, and
    `admin.key` for the first start. With it the service reads them there and makes none."""
    policy_dir: Path | None
    """The directory of policy files, `<tenant>/<industry>/<process group>.yaml`, watched for
    changes. Without it no files are read, and policies loaded from files stay as they are."""
    superadmin_key: str | None
    """The superadmin's key, 32 characters or more; generated at the first start if not set."""
    require_agent_id: bool
    """Whether every evaluation of every tenant must carry an `agent_id`."""
    pii_masking: bool
    """Whether personal data is masked for every tenant before it is stored."""
    session_ttl_minutes: int
    """How long a session lives if no policy of its role says otherwise."""
    log_level: str
    """The lowest level that is logged: debug, info, warning or error."""
    log_format: str | None
    """The form of a log line, `json` or `text`. Default: text on a terminal, JSON elsewhere."""
    metrics_listen: ListenAddress | None
    """A separate address for `/metrics`, which the API's port then no longer serves."""
    webhook_allow: AllowedHosts
    """Webhook receivers to allow although their address is not public: hosts,
    `host:port` or CIDRs, separated by commas."""
    smtp_url: MailServer | None
    """The mail server: `smtp[s]://[user:password@]host[:port][?starttls=always|never|auto]`."""
    smtp_from: str | None
    """The sender address of mail."""
    rate_limit: int
    """Requests per second that a key may make to a process; 0 means no limit. The keys of sidecars
    and the superadmin are exempt."""
    ingest_max_age: int
    """Seconds that a sidecar's record may be under way. One that took longer is kept, and listed
    and counted at its arrival."""
    new_spools_per_day: int
    """Spools that a key of a sidecar may begin at once in a process, and in a day after that."""
    enrol_issuers: tuple[Issuer, ...]
    """The clusters whose pods enrol by a ServiceAccount token, separated by `;`: `<issuer>=<JWKS
    URL or file>[,tenant=<id>][,ca=<file>][,token_file=<file>]`."""
    oidc_issuer: str | None
    """The identity provider that people sign in to the console with: its issuer, exactly as it
    writes it, such as `https://id.example.com/realms/staff`. Without it they sign in by a key."""
    oidc_client_id: str | None
    """The id that this service has as a client of the provider."""
    oidc_client_secret: str | None
    """The secret of that client. Without it the service is a public client."""
    oidc_scopes: tuple[str, ...]
    """What to ask the provider for, separated by blanks. Default: `openid profile email`, and
    `groups` if the provider knows that scope."""
    oidc_groups_claim: str
    """The claim that holds a person's groups, in the ID token or at the UserInfo endpoint."""
    oidc_groups: GroupGrants
    """What the groups may do, separated by commas: `<group>=read@<tenant>`,
    `<group>=admin@<tenant>` or `<group>=superadmin`. People in none of them can't sign in."""
    oidc_ca: Path | None
    """The authorities that vouch for the provider's certificate, PEM, instead of the system's."""
    export_urls: tuple[ExportTarget, ...]
    """Where decisions are pushed to, separated by commas: `otlp+http[s]://host:port`,
    `syslog+tcp://host:port?format=`, `syslog+tls://host[:port]?format=`, `file:///path?format=`."""
    console: bool
    """Whether the console is served, under `/console`."""
    console_url: str | None
    """The console's public address, such as `https://sluice.example`: it answers under this host
    alone. By `https` cookies are for HTTPS alone; forms are accepted from this origin only.
    Default: a name of its own on this machine, in `console-host` in the data directory; none by
    TLS."""
    console_idle_minutes: int
    """How long a session of the console lives without a request."""
    console_hours: int
    """How long a session of the console lives at most."""
    traces_endpoint: str | None
    """The OpenTelemetry collector's address, such as `http://127.0.0.1:4318`; spans go to
    `/v1/traces` there. Without it there are none."""
    traces_sample_ratio: float
    """The share of decisions to trace, 0 to 1, among those whose `traceparent` leaves it open."""

    @property
    def keys(self) -> Path:
        """The directory that holds the signing key."""
        return self.keys_dir or self.data_dir

    @property
    def database(self) -> DatabaseLimits:
        return DatabaseLimits(
            self.database_connections, self.database_seconds, self.database_pooled
        )

    @property
    def database_setting(self) -> str:
        """The name of the setting that locates the database, for error messages."""
        default = self.database_url == default_database(self.data_dir)
        return PREFIX + ("DATA_DIR" if default else "DATABASE_URL")

    @property
    def listen_setting(self) -> str:
        """The name of the setting that gives the database URL to listen at, for error messages."""
        default = self.listen_database_url == self.database_url
        return PREFIX + ("DATABASE_URL" if default else "LISTEN_DATABASE_URL")

    @property
    def tls(self) -> TlsFiles | None:
        """The TLS files of the API's port, or None for plain HTTP."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)

    @property
    def oidc(self) -> OidcSettings | None:
        """The settings of the identity provider, or None if people sign in by a key only."""
        if self.oidc_issuer is None or self.oidc_client_id is None or self.console_url is None:
            return None
        return OidcSettings(
            issuer=self.oidc_issuer,
            client_id=self.oidc_client_id,
            client_secret=self.oidc_client_secret,
            redirect_uri=f"{self.console_url}/console/oidc/callback",
            scopes=self.oidc_scopes,
            groups_claim=self.oidc_groups_claim,
            groups=self.oidc_groups,
            ca=self.oidc_ca,
        )

    def __repr__(self) -> str:
        # The key and the database's password must not get into a log through a traceback.
        return f"Settings(data_dir={str(self.data_dir)!r})"


def names() -> tuple[str, ...]:
    return tuple(PREFIX + field.name.upper() for field in fields(Settings))


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings in `environ`. Raise `SettingsError` with every complaint at once."""
    reader = ControlSettingsReader(environ)
    tls = reader.tls_files()
    witnesses = reader.parsed("WITNESSES", parse_witnesses) or ()
    data_dir = Path(reader.text("DATA_DIR", "./.sluice"))
    settings = Settings(
        data_dir=data_dir,
        database_url=reader.database(data_dir),
        listen_database_url=reader.listen_database(),
        redis_url=reader.redis(),
        database_connections=reader.number("DATABASE_CONNECTIONS", 16, 2, 1000, "connections"),
        database_seconds=reader.number("DATABASE_SECONDS", 10, 1, 600, "seconds"),
        database_pooled=reader.pooled(),
        checkpoint_store=reader.parsed("CHECKPOINT_STORE", StoreLocation.parse)
        or StoreLocation(data_dir / "checkpoints"),
        checkpoint_seconds=reader.number("CHECKPOINT_SECONDS", 5, 1, 3600, "seconds"),
        witnesses=witnesses,
        witness_quorum=reader.number(
            "WITNESS_QUORUM", len(witnesses), min(1, len(witnesses)), len(witnesses), "witnesses"
        ),
        start_seconds=reader.number("START_SECONDS", 30, 0, 3600, "seconds"),
        workers=reader.workers(),
        max_connections=reader.number(
            "MAX_CONNECTIONS", DEFAULT_CONNECTIONS, 16, 1_000_000, "connections"
        ),
        control_listen=reader.parsed("CONTROL_LISTEN", ListenAddress.parse)
        or ListenAddress("127.0.0.1", 8700),
        tls_certificate=tls.certificate if tls else None,
        tls_key=tls.key if tls else None,
        tls_client_ca=tls.client_ca if tls else None,
        keys_dir=reader.directory("KEYS_DIR"),
        policy_dir=reader.directory("POLICY_DIR"),
        superadmin_key=reader.superadmin_key(),
        require_agent_id=reader.flag("REQUIRE_AGENT_ID"),
        pii_masking=reader.flag("PII_MASKING"),
        session_ttl_minutes=reader.minutes("SESSION_TTL_MINUTES", 1440),
        log_level=reader.choice("LOG_LEVEL", LEVELS, "info"),
        log_format=reader.choice("LOG_FORMAT", FORMATS, "") or None,
        metrics_listen=reader.parsed("METRICS_LISTEN", ListenAddress.parse),
        webhook_allow=reader.parsed("WEBHOOK_ALLOW", AllowedHosts.parse) or AllowedHosts(),
        smtp_url=reader.parsed("SMTP_URL", MailServer.parse),
        smtp_from=reader.sender(),
        rate_limit=reader.rate("RATE_LIMIT"),
        ingest_max_age=reader.number("INGEST_MAX_AGE", 30 * 86_400, 60, 3650 * 86_400, "seconds"),
        new_spools_per_day=reader.number("NEW_SPOOLS_PER_DAY", 10_000, 1, 10_000_000, "spools"),
        enrol_issuers=reader.issuers("ENROL_ISSUERS"),
        oidc_issuer=reader.parsed("OIDC_ISSUER", parse_issuer),
        oidc_client_id=reader.text("OIDC_CLIENT_ID", "") or None,
        oidc_client_secret=reader.secret("OIDC_CLIENT_SECRET"),
        oidc_scopes=reader.parsed("OIDC_SCOPES", parse_scopes) or (),
        oidc_groups_claim=reader.text("OIDC_GROUPS_CLAIM", "groups"),
        oidc_groups=reader.parsed("OIDC_GROUPS", parse_group_grants) or GroupGrants(),
        oidc_ca=reader.parsed("OIDC_CA", parse_authorities),
        export_urls=reader.parsed("EXPORT_URLS", parse_targets) or (),
        console=reader.flag("CONSOLE", default="1"),
        console_url=reader.parsed("CONSOLE_URL", parse_origin),
        console_idle_minutes=reader.number("CONSOLE_IDLE_MINUTES", 60, 1, 1440, "minutes"),
        console_hours=reader.number("CONSOLE_HOURS", 12, 1, 168, "hours"),
        traces_endpoint=reader.traces_endpoint(),
        traces_sample_ratio=reader.share("TRACES_SAMPLE_RATIO", 0.01),
    )
    reader.require_whole_provider()
    reader.refuse_others(names())
    if reader.complaints:
        raise SettingsError(reader.complaints)
    return settings
