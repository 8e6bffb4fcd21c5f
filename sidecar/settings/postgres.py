"""The settings that only a data source of the kind `postgres` has, with a sentence per field. Knows
no files and no YAML."""

from dataclasses import dataclass
from pathlib import Path

from policies.definitions.model import Sensitivity

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Login:
    """The role with which the sidecar logs in at a PostgreSQL server, for every agent."""

    user: str
    """The name of the role."""
    password_file: Path | None = None
    """A file with its password, read at each login; without it, the server must ask for none."""


@dataclass(frozen=True, slots=True)
class RelationRule:
    """A rule about tables, views and other relations of a `postgres` source; the first one whose
    `match` fits a relation gives its source id and sensitivity."""

    match: str
    """The relations that it is about, as `schema.relation`; `*` stands for any characters."""
    source_id: str | None = None
    """The plain name that policies use instead of `postgres://<alias>/<database>/…`."""
    sensitivity: Sensitivity | None = None
    """The sensitivity of these relations; by default the source's."""


@dataclass(frozen=True, slots=True)
class AllowedFunctions:
    """The functions that statements may call besides the server's own."""

    allow: tuple[str, ...] = ()
    """Their names, as `schema.function`; `*` stands for any characters."""


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How much a statement may return, and how long it may take."""

    hold: int = 4 * MIB
    """The most bytes of rows that are held until the relations that they come from are known, such
    as `4 MiB`."""
    batch_rows: int = 1000
    """The most rows that the server makes between two looks at what it reads."""
    max_bytes: int = 256 * MIB
    """The most bytes of rows that one statement may return."""
    statement_seconds: int = 30
    """The most seconds that one statement may take."""
