"""Lists the fields of a decision's record, as one table.

From it come, at import: the members that the encoder takes from a retrieval and a decision
(`record`), the regular expressions of the two byte forms of a decision, for the readers that
recognise a decision by its bytes without parsing JSON (`record_fast_path` for the form that a
sidecar sends, `walk.known_lines` for the form in a log), what a sidecar may send (`record_schema`),
the members of an entry and an event of the API (`entry`), the columns of every export, the rows of
a report, and the tables of this folder's README. What is written by hand is compared with it in
`tests/policies/trail/test_fields.py`.

The rows stand in the order of an event in the API; those that an event does not show come last. In
a record, members stand in the order of their names, as the encoding sorts them: `members`. The
members beside `pub` are a closed list (`entry`), so each of those readers writes them itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from policies.definitions.model import MAX_CANDIDATES


class Type(StrEnum):
    """The type of a field's value in a record."""

    NAME = "identifier"
    TEXT = "text"
    UNREAD = "text, not checked"
    """Text by the format, which is not checked: a sidecar may send another type, since no list and
    no index reads the field."""
    SOURCE_TYPE = "source type"
    VERDICT = "`ALLOW`, `DENY`"
    ANSWER = "`ALLOW`, `DENY`, `ERROR`"
    COUNT = "integer"
    TRUE = "`true`"
    FLAG = "boolean"
    TIME = "time"
    HASH = "hash, in base64"
    DIGEST = "hash, in hex"
    MARKS = "list of marks"
    PAIRS = "list of `[path, rule]`"
    OBJECT = "object"
    """An object. Its members are rows of the table, unless it is recorded as it was encoded
    elsewhere."""
    ITEMS = "list of objects"
    """A list of objects. The members of an item are rows whose path begins with `<path>[]`."""


Export = Literal["ecs", "ocsf", "otel"]


@dataclass(frozen=True)
class Field:
    """A field of a decision's record, and its places in the API, exports and reports.

    `path` leads to it from the entry, with dots; it is empty for a value that is no member but
    follows from the whole entry. `says` describes it. `optional` says that the field may be absent
    (it is never null). `since` is the version of the record's format (`v`) that first had it.

    `shown` is its name in an event of the API and in a CSV's header; `csv` is the number of its
    column there. `ecs`, `ocsf` and `otel` are the members that it becomes in those exports,
    separated by commas. `report` is the number and the title of its row in a report. Each of these
    is None where the field has no place.
    """

    path: str
    type: Type
    says: str
    optional: bool = False
    since: int = 1
    shown: str | None = None
    csv: int | None = None
    ecs: str | None = None
    ocsf: str | None = None
    otel: str | None = None
    report: tuple[int, str] | None = None

    @property
    def name(self) -> str:
        """The name of the member: the last part of `path`."""
        return self.path.rpartition(".")[2].removesuffix("[]")

    @property
    def parent(self) -> str:
        """The path of the object that holds the field, empty for the entry itself."""
        return self.path.rpartition(".")[0]

    @property
    def committed(self) -> bool:
        """True if the record holds only a commitment to the field's value; otherwise the value
        stands there in clear."""
        return self.parent == COMMITTED


COMMITTED = "cm"
REQUEST, RESPONSE, CANDIDATE = "pub.request", "pub.response", "pub.candidates[]"
STATEMENT = "pub.statement"

# A row takes two or three lines, rather than ten.
# fmt: off
FIELDS = (
    Field("eid", Type.NAME, "The audit event's id, a UUIDv7.", shown="event_id", csv=1,
          ecs="event.id", ocsf="metadata.uid", otel="sluice.event_id", report=(14, "event")),
    Field("seq", Type.COUNT, "The entry's sequence number in the tenant's log.", shown="seq", csv=2,
          ecs="event.sequence", ocsf="metadata.sequence", otel="sluice.seq"),
    Field("ts", Type.TIME, "When it happened (RFC 3339, UTC).", shown="timestamp", csv=3,
          ecs="@timestamp", ocsf="time", otel="timeUnixNano"),
    Field("marks", Type.MARKS,
          "Whether the sidecar's time was too far from the arrival of its record. The event is "
          "then listed and counted at its arrival, and `timestamp` is that time.", optional=True,
          shown="time_doubtful", csv=22, ecs="labels.time_doubtful", ocsf="unmapped.time_doubtful",
          otel="sluice.time_doubtful", report=(12, "time")),
    Field("marks", Type.MARKS,
          "Whether a denial names an agent that the sidecar's key does not act for. It is "
          "counted for no agent.", optional=True, shown="agent_foreign", csv=23,
          ecs="labels.agent_foreign", ocsf="unmapped.agent_foreign", otel="sluice.agent_foreign"),
    Field("pub.response.decision", Type.VERDICT, "`ALLOW` or `DENY`.", shown="decision", csv=4,
          ecs="event.outcome, event.type",
          ocsf="action_id, disposition_id, status_id, severity_id, actor.authorizations.decision",
          otel="sluice.decision, severityNumber, severityText"),
    Field("pub.response.policy_name", Type.NAME,
          "The policy that decided, or the name of the identity check that denied.",
          shown="policy_name", csv=5, ecs="rule.name",
          ocsf="policy.name, actor.authorizations.policy.name", otel="sluice.policy.name"),
    Field("pub.response.reason", Type.TEXT, "The reason, in a sentence.", shown="reason", csv=7,
          ecs="event.reason", ocsf="status_detail", otel="sluice.reason"),
    Field("pub.response.check", Type.TEXT, "The check that denied. `null` on an `ALLOW`.",
          optional=True, shown="check", csv=8, ecs="labels.check", ocsf="status_code",
          otel="error.type"),
    Field("pub.response.policy_version", Type.COUNT,
          "The version of the policy that decided. `null` if no policy did.", optional=True,
          shown="policy_version", csv=6, ecs="rule.version",
          ocsf="policy.version, actor.authorizations.policy.version", otel="sluice.policy.version"),
    Field("pub.request.agent_role", Type.NAME,
          "The role the agent claims. Must equal a policy's `agent_role` exactly.",
          shown="agent_role", csv=9, ecs="user.roles", ocsf="actor.app_name",
          otel="sluice.agent_role", report=(2, "role")),
    Field("pub.request.agent_id", Type.NAME, "The registered agent that makes the call.",
          optional=True, shown="agent_id", csv=10, ecs="service.name", ocsf="actor.app_uid",
          otel="gen_ai.agent.id", report=(1, "agent")),
    Field("cm.user_id", Type.NAME,
          "The user on whose behalf the agent acted. `null` if it was erased.", shown="user_id",
          csv=11, ecs="user.id", ocsf="actor.user.uid", otel="user.id", report=(3, "user")),
    Field("pub.request.source_id", Type.NAME, "The data source.", shown="source_id", csv=12,
          ecs="labels.source_id", ocsf="databucket.name, databucket.uid",
          otel="gen_ai.data_source.id", report=(5, "source")),
    Field("pub.request.source_type", Type.SOURCE_TYPE,
          "The kind of caller or source, for example `api`, `sdk`, `langchain`, `chroma`.",
          shown="source_type", csv=13, ecs="labels.source_type", ocsf="unmapped.source_type",
          otel="sluice.source_type"),
    Field("pub.request.sensitivity_level", Type.TEXT,
          "How sensitive the data is, in ascending order from `low` to `critical`.",
          shown="sensitivity_level", csv=14, ecs="labels.sensitivity_level",
          ocsf="unmapped.sensitivity_level", otel="sluice.sensitivity_level",
          report=(6, "sensitivity")),
    Field("pub.request.session_id", Type.NAME,
          "Groups retrievals that belong together. A session belongs to one agent.", optional=True,
          shown="session_id", csv=15, ecs="labels.session_id", ocsf="actor.session.uid",
          otel="gen_ai.conversation.id", report=(4, "session")),
    Field("pub.request.task_type", Type.TEXT,
          "The task the agent performs, checked against the policy's task lists.", optional=True,
          shown="task_type", csv=16, report=(7, "task")),
    Field("cm.query", Type.TEXT,
          "The query text, masked if masking was on. `null` if it was erased.", optional=True,
          shown="query", report=(8, "query")),
    Field("cm.parameters", Type.TEXT,
          "The values of the statement's parameters, as the text of a JSON list: `null`, a text, "
          "`{\"base64\": …}`, or `{\"bytes\": n}` for one that was left out. `null` if there are "
          "none, or if they were erased.", optional=True, shown="parameters",
          report=(9, "parameters")),
    Field("pub.statement.id", Type.NAME,
          "The execution of a statement, such as one of SQL, that reads the source: a UUIDv7, the "
          "same for each source that it reads. `null` if none does.", shown="statement_id", csv=24,
          ecs="labels.statement_id", ocsf="unmapped.statement_id", otel="sluice.statement.id",
          report=(10, "statement")),
    Field("pub.statement.look", Type.NAME,
          "When it was first seen that the statement reads the source: `parse`, `bind`, `execute`, "
          "or `held`: an earlier statement had read it, and this one may have too.", optional=True,
          shown="statement_look", csv=25,
          ecs="labels.statement_look", ocsf="unmapped.statement_look", otel="sluice.statement.look",
          report=(11, "first seen at")),
    Field("pub.statement.fingerprint", Type.NAME,
          "The statement's structure, in 16 hex digits of libpg_query: the same for statements "
          "that differ in constants alone.", optional=True, shown="statement_fingerprint", csv=26,
          ecs="labels.statement_fingerprint", ocsf="unmapped.statement_fingerprint",
          otel="sluice.statement.fingerprint"),
    Field("cm.statement_digest", Type.DIGEST,
          "SHA-256, in hex, of the statement's exact text, also of what `query` leaves out. `null` "
          "if none reads the source, if something in the text was masked, or if it was erased.",
          optional=True, shown="statement_digest", csv=27, ecs="labels.statement_digest",
          ocsf="unmapped.statement_digest", otel="sluice.statement.digest"),
    Field("pub.context_hash", Type.TEXT,
          "SHA-256, in hex, of what was retrieved or will be sent. Computed from the request if "
          "left out.", shown="context_hash", csv=17),
    Field("pub.masking", Type.TRUE,
          "Whether personal data was masked before the event was written.", optional=True,
          shown="pii_masked", csv=18),
    Field("src.id", Type.NAME, "The sidecar's id. `null` for decisions made by the control API.",
          shown="sidecar_id", csv=19, ecs="observer.name", ocsf="src_endpoint.name",
          otel="sluice.sidecar_id", report=(13, "decided by")),
    Field("", Type.DIGEST, "The entry's leaf hash, in hex.", shown="hash", csv=20, ecs="event.hash",
          ocsf="raw_data_hash.value", otel="sluice.hash"),
    Field("prev", Type.HASH, "The leaf hash of the previous entry, in hex.", shown="prev_hash",
          csv=21),
    Field("src.inst", Type.NAME, "The instance of the sidecar's spool."),
    Field("src.n", Type.COUNT, "The record's number in its spool, from 0 without gaps."),
    Field("src.prev", Type.HASH, "The hash of the spool's previous record; empty for the first."),
    Field("src.t", Type.TIME,
          "When the sidecar decided. `timestamp` is this time, unless it is doubtful."),
    Field("pub.response.policy_id", Type.UNREAD,
          "The id of the policy that decided. Absent if no policy did.", optional=True),
    Field("pub.candidates", Type.ITEMS,
          "What [candidates](../INTERNALS.md#candidates) decide otherwise.", optional=True),
    Field("pub.candidates[].name", Type.NAME, "The candidate's name."),
    Field("pub.candidates[].revision", Type.COUNT, "The candidate's revision."),
    Field("pub.candidates[].decision", Type.ANSWER, "What it decides, or that it could not."),
    Field("pub.candidates[].policy_name", Type.NAME, "Its policy that decides."),
    Field("pub.candidates[].check", Type.NAME, "Its check that denies.", optional=True),
    Field("pub.facts", Type.OBJECT,
          "What the decision rests on. Empty if the call was refused before any facts were "
          "gathered."),
    Field("pub.facts.agent", Type.OBJECT, "The registered agent.", optional=True),
    Field("pub.facts.frozen_at", Type.COUNT,
          "When the tenant was frozen, in microseconds since 1970 UTC.", optional=True),
    Field("pub.facts.key", Type.OBJECT, "The key that asked."),
    Field("pub.facts.levels", Type.OBJECT,
          "Who states which level of the source: `request`, `sidecar`, `tenant`. "
          "`sensitivity_level` is the highest.", optional=True),
    Field("pub.facts.require_agent_id", Type.FLAG, "The tenant's setting."),
    Field("pub.facts.revision", Type.COUNT, "The revision of the policy set."),
    Field("pub.facts.role", Type.DIGEST, "SHA-256 of the document of the role's policies.",
          optional=True),
    Field("pub.facts.session", Type.OBJECT, "The session.", optional=True),
    Field("pub.facts.sources", Type.DIGEST, "SHA-256 of the tenant's document `sources`.",
          optional=True),
    Field("v", Type.COUNT, "1, the version of this format."),
    Field("kind", Type.NAME, "`decision`."),
    Field("log", Type.NAME, "The log that it is in."),
    Field("masked", Type.PAIRS, "In which field something was masked, and as what. Sorted."),
    Field("cm", Type.OBJECT, "Commitments to what may be personal."),
    Field("pub", Type.OBJECT, "What is in clear."),
    Field("pub.request", Type.OBJECT, "What was asked."),
    Field("pub.response", Type.OBJECT, "What was answered."),
    Field("pub.statement", Type.OBJECT, "The statement that reads the source.", optional=True),
    Field("src", Type.OBJECT,
          "The place in the sidecar's spool. Absent if the control API decided.", optional=True),
)
# fmt: on
"""The table. INVARIANT: rows are added, never removed or renamed, since old records keep their
fields forever."""


def members(parent: str) -> tuple[Field, ...]:
    """Return the fields of the object at `parent` in the order of the encoding, each member
    once."""
    by_name = {field.name: field for field in FIELDS if field.path and field.parent == parent}
    return tuple(by_name[name] for name in sorted(by_name))


def names(parent: str, *, optional: bool | None = None) -> tuple[str, ...]:
    """Return the names of `members(parent)`: all by default, or only those whose `optional` equals
    the argument."""
    return tuple(
        each.name for each in members(parent) if optional is None or each.optional is optional
    )


def exported(export: Export, within: str) -> tuple[tuple[str, str], ...]:
    """Return pairs for the members of an export whose name begins with `within`: the member's name
    without that prefix, and the name of the field that it holds (`Field.shown`)."""
    return tuple(
        (column.removeprefix(within), field.shown)
        for field in FIELDS
        for column in (getattr(field, export) or "").split(", ")
        if field.shown and column.startswith(within)
    )


Values = Mapping[str, bytes]
"""Regular expressions of values, keyed by a field's path or by its type."""


def known_members(parent: str, values: Values) -> dict[str, bytes]:
    """Return the regular expression of each member of the object at `parent`, keyed by the member's
    name. Each includes its comma, so joined they match what is between the object's braces. At
    least one member must not be optional."""
    found: dict[str, bytes] = {}
    before, after = b"", b","
    for field in members(parent):
        member = b'"%b":%b' % (field.name.encode(), _value(field, values))
        # `(?:x|)` takes half the time of `(?:x)?`.
        optional = rb"(?:%b|)" % (before + member + after)
        found[field.name] = optional if field.optional else before + member
        # The comma of an optional member is behind it until there is one that is never absent.
        if not field.optional:
            before, after = b",", b""
    return found


def known_object(parent: str, values: Values) -> bytes:
    """Return the regular expression of the object at `parent`, braces included."""
    return rb"\{%b\}" % b"".join(known_members(parent, values).values())


def _value(field: Field, values: Values) -> bytes:
    known = values.get(field.path) or values.get(field.type)
    if known is not None:
        return known
    if field.type is Type.ITEMS:
        item = known_object(f"{field.path}[]", values)
        return rb"\[%b(?:,%b){0,%d}\]" % (item, item, MAX_CANDIDATES - 1)
    return known_object(field.path, values)
