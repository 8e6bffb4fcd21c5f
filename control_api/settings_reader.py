"""Parses the control API's settings one at a time, and collects all complaints."""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from control_api.security.console_settings import provider_faults
from control_api.security.issuers import Issuer, IssuerFaults, parse_issuers
from policies.ground.addresses import RedisUrl
from policies.ground.distribution import how_to_install
from policies.ground.process.settings_reader import PREFIX, SettingsReader
from policies.ground.process.tls_files import TlsFiles, UnusableTls

SUPERADMIN_KEY_LENGTH = 32
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[!-~]*)?\Z")
# An origin, as browsers send it (RFC 6454, section 6.2).
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?\Z")
_SENDER = re.compile(r"[^@\s<>,;:\"]+@[A-Za-z0-9.-]+\Z")

ELSEWHERE = {
    "MIGRATE_DATABASE_URL": "The database as its tables' owner, for `sluice migrate`.",
    "URL": "The control API that client commands such as `sluice agents` call.",
    "KEY_FILE": "The file with the API key that client commands send.",
    "CA": "The file with the certificate authority that client commands trust.",
    "API_KEY": "The API key itself; it leaks more easily than a file.",
}
"""Settings that other commands read from the same environment, so that `refuse_others` accepts
them."""
SECRETS = (
    "CONSOLE_URL",
    "DATABASE_URL",
    "LISTEN_DATABASE_URL",
    "MIGRATE_DATABASE_URL",
    "OIDC_CLIENT_SECRET",
    "REDIS_URL",
    "SMTP_URL",
    "SUPERADMIN_KEY",
)
"""The settings that may hold a secret. Instead of each, `SLUICE_<NAME>_FILE` may name a file with
the value: everyone who may inspect a container sees its environment."""
_POSTGRESQL = "postgresql+asyncpg://"
OTHERS = ("GUARD_", "SIDECAR_", "UP_")  # the guard's settings, the sidecar's, and `sluice up`'s


def default_database(data_dir: Path) -> str:
    return f"sqlite+aiosqlite:///{data_dir / 'sluice.db'}"


class ControlSettingsReader(SettingsReader):
    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ, SECRETS)

    def secret(self, name: str) -> str | None:
        """Read the value of a setting that only another command uses, from the environment or its
        file. None if it is not set."""
        return self._environ.get(PREFIX + name) or None

    def database(self, data_dir: Path) -> str:
        url = self.text("DATABASE_URL", default_database(data_dir))
        if not url.startswith(("sqlite+aiosqlite:///", _POSTGRESQL)):
            # The value is not quoted, since it may hold a password.
            self.complain(
                "DATABASE_URL", "must begin with sqlite+aiosqlite:/// or postgresql+asyncpg://"
            )
        return url

    def listen_database(self) -> str | None:
        """Read the database URL at which to listen for changes by other processes. None on SQLite,
        and behind a pooler if the setting gives no direct URL."""
        url = self.text("LISTEN_DATABASE_URL", "")
        # The value is not quoted, since it may hold a password.
        if url and not url.startswith(_POSTGRESQL):
            self.complain("LISTEN_DATABASE_URL", f"must begin with {_POSTGRESQL}")
        elif url and not self._on_postgresql():
            self.complain("LISTEN_DATABASE_URL", "needs PostgreSQL in SLUICE_DATABASE_URL")
        if url or not self._on_postgresql() or self.text("DATABASE_POOLED", "") == "1":
            return url or None
        return self.text("DATABASE_URL", "")

    def workers(self) -> int:
        workers = self.number("WORKERS", 1, 1, 64, "processes")
        if workers > 1 and not self._on_postgresql():
            self.complain("WORKERS", "more than 1 needs PostgreSQL in SLUICE_DATABASE_URL")
        return workers

    def pooled(self) -> bool:
        pooled = self.flag("DATABASE_POOLED")
        if pooled and not self._on_postgresql():
            self.complain("DATABASE_POOLED", "needs PostgreSQL in SLUICE_DATABASE_URL")
        return pooled

    def _on_postgresql(self) -> bool:
        return self.text("DATABASE_URL", "").startswith(_POSTGRESQL)

    def redis(self) -> RedisUrl | None:
        url = self.parsed("REDIS_URL", RedisUrl.parse)
        # redis-py is an extra of the package (pyproject.toml): without Redis, it is not needed.
        if url is not None and find_spec("redis") is None:
            self.complain("REDIS_URL", f"needs redis-py; {how_to_install('redis')}")
        return url

    def tls_files(self) -> TlsFiles | None:
        """Load the TLS files. None for plain HTTP, or if the certificate or its key is not set."""
        parts = ("CERTIFICATE", "KEY", "CLIENT_CA")
        certificate, key, authorities = (self.text(f"TLS_{part}", "") for part in parts)
        if not (certificate or key or authorities):
            return None
        missing = [part for part, text in (("CERTIFICATE", certificate), ("KEY", key)) if not text]
        for part in missing:
            self.complain(f"TLS_{part}", "is needed if any of the TLS settings is set")
        if missing:
            return None
        files = TlsFiles(Path(certificate), Path(key), Path(authorities) if authorities else None)
        # Load them once now, so that a fault names its setting and does not fail every handshake.
        try:
            files.context()
        except UnusableTls as error:
            self.complain(f"TLS_{error.part.upper()}", str(error))
        return files

    def superadmin_key(self) -> str | None:
        key = self._environ.get(PREFIX + "SUPERADMIN_KEY") or None
        if key is not None and len(key) < SUPERADMIN_KEY_LENGTH:
            # The value is not quoted: it is a secret, even if it is too short.
            self.complain("SUPERADMIN_KEY", f"must have {SUPERADMIN_KEY_LENGTH} characters or more")
        return key

    def sender(self) -> str | None:
        sender = self.text("SMTP_FROM", "")
        if sender and not _SENDER.match(sender):
            self.complain("SMTP_FROM", f"`{sender}` is not an email address")
        if not sender and self.text("SMTP_URL", ""):
            self.complain("SMTP_FROM", "is needed if SLUICE_SMTP_URL is set")
        return sender or None

    def issuers(self, name: str) -> tuple[Issuer, ...]:
        try:
            return parse_issuers(self.text(name, ""))
        except IssuerFaults as error:
            for fault in error.faults:
                self.complain(name, fault)
            return ()

    def require_whole_provider(self) -> None:
        for name, fault in provider_faults(lambda name: self.text(name, "")):
            self.complain(name, fault)

    def traces_endpoint(self) -> str | None:
        text = self.text("TRACES_ENDPOINT", "")
        if not text:
            return None
        if not _ADDRESS.match(text):
            # Not quoted: an address may hold a password, which this one must not.
            self.complain("TRACES_ENDPOINT", "must be http://host:port or https://host:port")
        if find_spec("opentelemetry") is None:
            self.complain("TRACES_ENDPOINT", f"needs the SDK; {how_to_install('otel')}")
        return text

    def minutes(self, name: str, default: int) -> int:
        # At most ten years: a longer session is a mistake, and a very late time could overflow.
        return self.number(name, default, 1, 5_256_000, "minutes")

    def rate(self, name: str) -> int:
        return self.number(name, 0, 0, 1_000_000, "requests")

    def refuse_others(self, names: Iterable[str]) -> None:
        """Add a complaint about each setting that has our prefix and is not in `names`."""
        known = {*names, *(PREFIX + name for name in ELSEWHERE)}
        known.update(f"{PREFIX}{name}_FILE" for name in SECRETS)
        # The environment may be shared with a sidecar, an agent's guard and `sluice up`.
        others = tuple(PREFIX + other for other in OTHERS)
        self.refuse_unknown(
            known, lambda name: name.startswith(PREFIX) and not name.startswith(others)
        )
