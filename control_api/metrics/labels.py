"""The closed sets of label values. A label never holds text from a tenant, a user or an agent."""

from enum import StrEnum


class RefusalReason(StrEnum):
    """Why a caller was refused."""

    missing = "missing"
    differ = "differ"
    unknown = "unknown"
    expired = "expired"
    deactivated = "deactivated"
    scope = "scope"
    rate = "rate"


class Foreign(StrEnum):
    """Of which kind a foreign name was, in what a sidecar's key said. `event` is the id of
    another record's entry, or that of an event that the log does not have."""

    agent = "agent"
    event = "event"
    sidecar = "sidecar"


class Reload(StrEnum):
    """The outcome of reading a tenant's policy files."""

    changed = "changed"
    unchanged = "unchanged"
    refused = "refused"


class Ingest(StrEnum):
    """The outcome of a record that a sidecar delivered."""

    held = "held"
    refused = "refused"
    rejected = "rejected"
    foreign = "foreign"
    doubtful = "doubtful"


class DeliveryOutcome(StrEnum):
    """The outcome of an attempt to deliver an alert."""

    delivered = "delivered"
    retried = "retried"
    failed = "failed"


class Purging(StrEnum):
    """The outcome of a tenant's hourly purge."""

    purged = "purged"
    nothing = "nothing"
    refused = "refused"
    failed = "failed"


class Signing(StrEnum):
    """The outcome of an attempt to sign a log that has changed."""

    signed = "signed"
    refused = "refused"
    failed = "failed"


class Pushing(StrEnum):
    """The outcome of updating a tenant's policy set in Redis."""

    pushed = "pushed"
    mended = "mended"
    rebuilt = "rebuilt"
    current = "current"
    failed = "failed"


class Challenge(StrEnum):
    """The outcome of a sidecar's request for a heartbeat."""

    answered = "answered"
    foreign = "foreign"
    unreadable = "unreadable"
    unanswered = "unanswered"


class SessionPush(StrEnum):
    """The outcome of writing a session's claim or revocation to Redis."""

    written = "written"
    older = "older"
    dropped = "dropped"


class Enrolling(StrEnum):
    """The outcome of an enrolment: keys, a wait for approval, or why the token gets nothing."""

    enrolled = "enrolled"
    pending = "pending"
    off = "off"
    malformed = "malformed"
    header = "header"
    algorithm = "algorithm"
    issuer = "issuer"
    key = "key"
    signature = "signature"
    audience = "audience"
    lifetime = "lifetime"
    expired = "expired"
    early = "early"
    subject = "subject"
    binding = "binding"
    tenant = "tenant"
    agent = "agent"
    too_many = "too_many"
    rate = "rate"
    unavailable = "unavailable"


class KeySetFetch(StrEnum):
    """The outcome of reading an issuer's key set."""

    fetched = "fetched"
    failed = "failed"
