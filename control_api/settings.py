"""What an operator may set, one sentence a field. Reads a mapping, never the environment itself.

All complaints come at once (`SettingsError`), before a file or a port is touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from control_api.database_limits import DatabaseLimits
from control_api.security.egress import AllowedHosts, MailServer
from control_api.security.tls_files import TlsFiles
from control_api.settings_reader import PREFIX, SettingsReader, default_database
from policies.ground.listen_address import ListenAddress
from policies.ground.log_line import FORMATS, LEVELS
from policies.ground.redis_url import RedisUrl
from policies.ground.settings import SettingsError


@dataclass(frozen=True, slots=True)
class Settings:
    """The control API's settings; each is `SLUICE_` and the field's name in capitals."""

    data_dir: Path
    """Where the SQLite file, the log's signing key and the first start's secrets live."""
    database_url: str
    """The store: `sqlite+aiosqlite:///…` (the default, in the data directory) or
    `postgresql+asyncpg://…`."""
    redis_url: RedisUrl | None
    """The Redis that sidecars are fed through: `redis[s]://…` or `redis[s]+cluster://…`; without
    one they ask the API itself."""
    database_connections: int
    """Connections to PostgreSQL that a process keeps, at most: a transaction takes one."""
    database_seconds: int
    """How long a statement may run on PostgreSQL, or wait for one, before its request is told to
    come again."""
    start_seconds: int
    """How long a start tries again where the database does not answer, or does not let us in."""
    workers: int
    """Processes that share the port; several on PostgreSQL alone."""
    control_listen: ListenAddress
    """Where the API listens; port 0 lets the system choose."""
    tls_certificate: Path | None
    """The API's certificate with its chain, PEM: with it the API speaks HTTPS only. The three files
    are read again when they are written anew."""
    tls_key: Path | None
    """The private key of that certificate, PEM, not encrypted."""
    tls_client_ca: Path | None
    """The authorities by which clients are verified, PEM: each must then show a certificate."""
    policy_dir: Path | None
    """The policy files, `<tenant>/<industry>/<process group>.yaml`; watched. Without it no policy
    comes from a file, and those that once did stay as they are."""
    superadmin_key: str | None
    """The superadmin's key, 32 characters or more; made at the first start where it is not set."""
    require_agent_id: bool
    """Whether every evaluation of every tenant must carry an `agent_id`."""
    pii_masking: bool
    """Whether what is personal is masked for every tenant before it is written down."""
    session_ttl_minutes: int
    """How long a session lives where no policy of its role says."""
    log_level: str
    """The least important line that is logged: debug, info, warning or error."""
    log_format: str | None
    """A log line's form, `json` or `text`; without it, text on a terminal and JSON elsewhere."""
    metrics_listen: ListenAddress | None
    """A port of its own for `/metrics`, which then leaves the API's."""
    webhook_allow: AllowedHosts
    """Receivers of webhooks that may be called although their address is not public: hosts,
    `host:port` or CIDRs, with commas between."""
    smtp_url: MailServer | None
    """The mail server: `smtp[s]://[user:password@]host[:port][?starttls=always|never|auto]`."""
    smtp_from: str | None
    """The address that mail is sent from."""
    rate_limit: int
    """Requests a second that a key may make of a process; 0 sets no limit. Sidecars' keys and the
    superadmin's have none."""

    @property
    def database(self) -> DatabaseLimits:
        return DatabaseLimits(self.database_connections, self.database_seconds)

    @property
    def database_setting(self) -> str:
        """The setting that says where the database is, for an operator to look at."""
        default = self.database_url == default_database(self.data_dir)
        return PREFIX + ("DATA_DIR" if default else "DATABASE_URL")

    @property
    def tls(self) -> TlsFiles | None:
        """The files of the API's port; None where it speaks plain HTTP."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)

    def __repr__(self) -> str:
        # The key and the database's password must not reach a log by way of a traceback.
        return f"Settings(data_dir={str(self.data_dir)!r})"


def names() -> tuple[str, ...]:
    """The environment variables that this service reads."""
    return tuple(PREFIX + field.name.upper() for field in fields(Settings))


def read(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`; `SettingsError` with every complaint."""
    reader = SettingsReader(environ)
    tls = reader.tls_files()
    data_dir = Path(reader.text("DATA_DIR", "./.sluice"))
    settings = Settings(
        data_dir=data_dir,
        database_url=reader.database(data_dir),
        redis_url=reader.redis(),
        database_connections=reader.number("DATABASE_CONNECTIONS", 16, 2, 1000, "connections"),
        database_seconds=reader.number("DATABASE_SECONDS", 10, 1, 600, "seconds"),
        start_seconds=reader.number("START_SECONDS", 30, 0, 3600, "seconds"),
        workers=reader.workers(),
        control_listen=reader.listen("CONTROL_LISTEN") or ListenAddress("127.0.0.1", 8700),
        tls_certificate=tls.certificate if tls else None,
        tls_key=tls.key if tls else None,
        tls_client_ca=tls.client_ca if tls else None,
        policy_dir=reader.directory("POLICY_DIR"),
        superadmin_key=reader.superadmin_key(),
        require_agent_id=reader.flag("REQUIRE_AGENT_ID"),
        pii_masking=reader.flag("PII_MASKING"),
        session_ttl_minutes=reader.minutes("SESSION_TTL_MINUTES", 1440),
        log_level=reader.choice("LOG_LEVEL", LEVELS, "info"),
        log_format=reader.choice("LOG_FORMAT", FORMATS, "") or None,
        metrics_listen=reader.listen("METRICS_LISTEN"),
        webhook_allow=reader.webhook_allow(),
        smtp_url=reader.mail_server(),
        smtp_from=reader.sender(),
        rate_limit=reader.rate("RATE_LIMIT"),
    )
    reader.refuse_unknown(names())
    if reader.complaints:
        raise SettingsError(reader.complaints)
    return settings
