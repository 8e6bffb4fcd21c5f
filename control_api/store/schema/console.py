"""The sessions of the console, and the links that begin one. Secrets are stored as SHA-256 alone.

No foreign key to the tenants: the superadmin, who belongs to none, has sessions too, under
`SUPERADMIN_REALM`.
"""

from sqlalchemy import Index

from control_api.store.schema.columns import (
    binary,
    binary_or_null,
    string,
    string_or_null,
    table,
    timestamp,
    timestamp_or_null,
)

SUPERADMIN_REALM = "superadmin"
"""Stands where a tenant's id stands. No tenant has this id: the first tenant's is `default`, that
of every other begins with `ten_`."""

# `digest` is the SHA-256 of the cookie's secret. `method` is how the person signed in, and `person`
# the name in the audit trail. A session that began with a key has its SHA-256 in `key_digest`, and
# dies with it; one of OpenID Connect has the issuer, the subject and the group that gave its scope.
console_sessions = table(
    "console_sessions",
    binary("digest"),
    string("session_id"),
    string("method"),
    string("person"),
    string("scope"),
    binary_or_null("key_digest"),
    string_or_null("issuer"),
    string_or_null("subject"),
    string_or_null("granted_by"),
    timestamp("created_at"),
    timestamp("seen_at"),
    timestamp("expires_at"),
    string("browser"),
    Index("ux_console_sessions_session_id", "tenant_id", "session_id", unique=True),
    Index(None, "tenant_id", "created_at", "session_id"),
    key=("digest",),
)

# A link works once: `used_at` is set in the transaction that begins the session.
sign_in_links = table(
    "sign_in_links",
    binary("digest"),
    string("person"),
    string("scope"),
    binary("key_digest"),
    timestamp("expires_at"),
    timestamp_or_null("used_at"),
    key=("digest",),
)
