"""Defines the closed sets of values that metric labels take. A label never holds text from a
tenant, a user or an agent."""

from enum import StrEnum

# Why a caller was refused.
RefusalReason = StrEnum(
    "RefusalReason", ("missing", "differ", "unknown", "expired", "deactivated", "scope", "rate")
)

# Of which kind a foreign name was, in what a sidecar's key said. `event` is the id of another
# record's entry, or that of an event that the log does not have.
Foreign = StrEnum("Foreign", ("agent", "event", "sidecar"))

# The outcome of reading a tenant's policy files.
Reload = StrEnum("Reload", ("changed", "unchanged", "refused"))

# The outcome of a record that a sidecar delivered.
Ingest = StrEnum("Ingest", ("held", "refused", "rejected", "foreign", "doubtful"))

# The outcome of an attempt to deliver an alert.
DeliveryOutcome = StrEnum("DeliveryOutcome", ("delivered", "retried", "failed"))

# The outcome of a tenant's hourly purge.
Purging = StrEnum("Purging", ("purged", "nothing", "refused", "failed"))

# The outcome of an attempt to sign a log that has changed.
Signing = StrEnum("Signing", ("signed", "refused", "failed"))

# The outcome of updating a tenant's policy set in Redis.
Pushing = StrEnum("Pushing", ("pushed", "mended", "rebuilt", "current", "failed"))

# The outcome of a sidecar's request for a heartbeat.
Challenge = StrEnum("Challenge", ("answered", "foreign", "unreadable", "unanswered"))

# The outcome of writing a session's claim or revocation to Redis.
SessionPush = StrEnum("SessionPush", ("written", "older", "dropped"))

# The outcome of an enrolment: keys, a wait for approval, or why the token gets nothing.
Enrolling = StrEnum(
    "Enrolling",
    (
        "enrolled",
        "pending",
        "off",
        "malformed",
        "header",
        "algorithm",
        "issuer",
        "key",
        "signature",
        "audience",
        "lifetime",
        "expired",
        "early",
        "subject",
        "binding",
        "tenant",
        "agent",
        "too_many",
        "rate",
        "unavailable",
    ),
)

# The outcome of reading an issuer's key set.
KeySetFetch = StrEnum("KeySetFetch", ("fetched", "failed"))
