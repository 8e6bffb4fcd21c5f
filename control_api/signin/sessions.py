"""Begins and ends sessions of the console: the row, and the entry in the tenant's log. Knows no
cookie and no page."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import NamedTuple, cast, get_args

from control_api.auth.principal import Caller, Superadmin, realm_of
from control_api.signin import session_queries
from control_api.signin.bundle import SigningIn
from control_api.signin.console_session import SessionToken, last_idle
from control_api.signin.models import shown_console_session
from control_api.signin.session_queries import ConsoleScope, ConsoleSession, SignInMethod
from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.transaction import Transaction
from policies.ground.errors import Forbidden
from policies.ground.ids import prefixed
from policies.trail.change import ObjectChange

ALLOWED = frozenset(get_args(ConsoleScope))
HOUR = 3_600_000_000  # microseconds
_log = logging.getLogger("sluice.console")


class SignIn(NamedTuple):
    """Who signs in, and how. `issuer`, `subject` and `granted_by`, the group that gave the scope,
    are those of OpenID Connect. `browser` is a short label (`requests.browser`)."""

    caller: Caller | Superadmin
    method: SignInMethod
    browser: str
    issuer: str | None = None
    subject: str | None = None
    granted_by: str | None = None


class NewSession(NamedTuple):
    """A session that has just begun. `token` is the cookie's value; it is shown only here."""

    token: SessionToken
    session: ConsoleSession


async def begin_session(
    signin: SigningIn,
    who: SignIn,
    admit: Callable[[Transaction], Awaitable[None]] | None = None,
) -> NewSession:
    """Begin a session. `admit` runs in its transaction, and may refuse it. Raises `Forbidden` if
    the caller's scope is not one for people."""
    caller = who.caller
    if caller.scope not in ALLOWED:
        raise Forbidden(
            f"the key's scope is `{caller.scope}`; the console needs admin, read or superadmin"
        )
    # Drawn once, since `work` runs again after a conflict.
    token = SessionToken.new(realm_of(caller), signin.entropy(32))
    session_id = prefixed("ses_", signin.entropy(16))

    async def work(tx: Transaction) -> ConsoleSession:
        if admit is not None:
            await admit(tx)
        idle = last_idle(signin.settings, tx.now)
        await session_queries.delete_ended(tx.connection, tx.tenant_id, tx.now, idle)
        session = ConsoleSession(
            digest=token.digest,
            session_id=session_id,
            method=who.method,
            person=caller.by,
            scope=cast("ConsoleScope", caller.scope),
            key_digest=caller.digest,
            issuer=who.issuer,
            subject=who.subject,
            granted_by=who.granted_by,
            created_at=tx.now,
            seen_at=tx.now,
            expires_at=tx.now + signin.settings.console_hours * HOUR,
            browser=who.browser,
        )
        await session_queries.add(tx.connection, tx.tenant_id, session)
        change = ObjectChange(None, asdict(shown_console_session(session)))
        await _log_session(signin, tx, "console.signed_in", session, caller.by, change)
        return session

    return NewSession(token, await signin.store.write(token.realm, work))


async def end_session(
    signin: SigningIn,
    realm: str,
    session_id: str,
    what: str,
    by: str,
    person: str | None = None,
) -> ConsoleSession | None:
    """End a session at once, in every process; of this person alone if one is given. None if there
    is no such session."""

    async def work(tx: Transaction) -> ConsoleSession | None:
        session = await session_queries.end(tx.connection, tx.tenant_id, session_id, person)
        if session is not None:
            change = ObjectChange(asdict(shown_console_session(session)), None)
            await _log_session(signin, tx, what, session, by, change)
        return session

    return await signin.store.write(realm, work)


async def _log_session(
    signin: SigningIn,
    tx: Transaction,
    what: str,
    session: ConsoleSession,
    by: str,
    change: ObjectChange,
) -> None:
    if tx.tenant_id == SUPERADMIN_REALM:
        # The superadmin belongs to no tenant, so there is no audit log for it.
        name, session_id = session.person, session.session_id
        _log.info("%s: %s, session `%s`%s", what, name, session_id, _whence(session))
        return
    detail = {"method": session.method, "scope": session.scope, "person": session.person}
    await signin.changes.record(tx, what, session.session_id, by, detail, change)


def _whence(session: ConsoleSession) -> str:
    """Who vouched for a person; empty for a key."""
    if session.method != "oidc":
        return ""
    return f", subject `{session.subject}` of `{session.issuer}`, group `{session.granted_by}`"
