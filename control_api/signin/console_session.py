"""Begins and ends sessions of the console, each with an entry in the tenant's log. At each request,
identifies the session's visitor by the session's secret.

A session ends by itself after an idle time and at an absolute limit. It ends at once when it is
revoked, when the key that began it is revoked, expires or is rotated out, or when its tenant is
deactivated. A session of OpenID Connect also ends when the settings no longer give its group this
scope. All of this is checked at each request, with the session's row in the store, and the key and
the tenant in the cache, so that all workers and replicas agree.

A session belongs to a realm: a tenant's id, or the superadmin's realm. Its row is read under the
row-level security of that tenant or realm.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from prometheus_client import Counter

from control_api.auth import Caller, Superadmin, realm_of
from control_api.log.append import Changes
from control_api.security.console_settings import ConsoleAddress, GroupGrant
from control_api.settings import Settings
from control_api.signin import queries
from control_api.signin.models import shown_console_session
from control_api.signin.queries import ConsoleScope, ConsoleSession, SignInMethod
from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.store import Store
from control_api.store.tenant_cache import TenantCache
from control_api.store.transaction import Transaction
from policies.definitions.model import Key, Scope
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, NotFound, Unavailable
from policies.ground.ids import base62, prefixed
from policies.trail.change import ObjectChange

if TYPE_CHECKING:
    from control_api.signin.provider import IdentityProvider


@dataclass(frozen=True, slots=True)
class SigningIn:
    """The objects that signing in to the console works with. `entropy(n)` returns n random bytes;
    `identity_provider` is None if people sign in by keys only; `refusals` counts refused callers,
    by reason."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    settings: Settings
    address: ConsoleAddress
    tenants: TenantCache
    identity_provider: "IdentityProvider | None"
    refusals: Counter


_FORM = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9A-Za-z]{43})\Z")
_FORM_TOKEN = b"sluice: token in the console's forms"


class SessionToken(NamedTuple):
    """The secret token of a console session or of a sign-in link, with its realm. The token is
    well-formed, but there need not be such a session."""

    realm: str
    secret: str

    @classmethod
    def new(cls, realm: str, entropy: bytes) -> "SessionToken":
        """Make a token from 32 random bytes."""
        return cls(realm, base62(int.from_bytes(entropy[:32], "big"), 43))

    @classmethod
    def read(cls, text: str) -> "SessionToken | None":
        """Parse a token. Return None if `text` does not have a token's form."""
        found = _FORM.match(text)
        return None if found is None else cls(found[1], found[2])

    def write(self) -> str:
        return f"{self.realm}.{self.secret}"

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the secret, which is the only form that is ever stored."""
        return hashlib.sha256(self.secret.encode("ascii")).digest()

    @property
    def form_token(self) -> str:
        """The token that each form of this session carries, against cross-site request forgery. It
        is derived from the secret, so it needs no storage, and does not reveal the secret."""
        return hmac.new(self.secret.encode("ascii"), _FORM_TOKEN, "sha256").hexdigest()

    def made_form(self, token: str) -> bool:
        """Return whether a form with this token was made for this session. The comparison takes
        constant time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.form_token.encode())


MINUTE = 60_000_000
TOUCH = MINUTE
"""The microseconds between two updates of a session's `seen_at`."""
AHEAD = 5 * MINUTE
"""The microseconds by which the clocks of replicas may differ."""
_log = logging.getLogger("sluice.console")


class Visitor(NamedTuple):
    """The visitor of a live console session: the session, its token, and the caller that it acts
    as."""

    caller: Caller | Superadmin
    session: ConsoleSession
    token: SessionToken


class SessionReader:
    """Finds the visitor who presents a session token. `superadmin` is the SHA-256 of the
    superadmin's key, or None if there is no such key."""

    def __init__(self, signin: SigningIn, superadmin: bytes | None) -> None:
        self._signin = signin
        self._superadmin = superadmin

    async def __call__(self, presented: str) -> Visitor | None:
        """Return the visitor who presents this token, or None if it belongs to no live session."""
        signin, token = self._signin, SessionToken.read(presented)
        session = None if token is None else await self._stored(token)
        if token is None or session is None:
            return None
        now = signin.clock.now()
        if not _in_time(session, signin.settings, now):
            await self._forget_ended(token.realm)
            return None
        caller = await self._caller(token, session, now)
        if caller is None:
            return None
        if session.seen_at < now - TOUCH:
            await self._touch(token, now)
        return Visitor(caller, session, token)

    async def _stored(self, token: SessionToken) -> ConsoleSession | None:
        # In one turn of a thread: every request of the console asks, and every open tail does.
        realm, digest = token.realm, token.digest
        return await self._signin.store.run_reading(
            realm, lambda connection: queries.find_session(connection, realm, digest)
        )

    async def _lives(self, token: SessionToken) -> bool:
        """Return whether the session has not ended. This does not count as a use of the session."""
        session = await self._stored(token)
        return session is not None and _in_time(
            session, self._signin.settings, self._signin.clock.now()
        )

    async def _caller(
        self, token: SessionToken, session: ConsoleSession, now: int
    ) -> Caller | Superadmin | None:
        realm, digest = token.realm, session.key_digest
        if session.method == "oidc" and not _is_granted(self._signin.settings, realm, session):
            return None
        if realm == SUPERADMIN_REALM and session.method == "oidc":
            return Superadmin(None, by=session.person)
        if realm == SUPERADMIN_REALM:
            # A new superadmin key ends the sessions of the one before.
            expected = self._superadmin
            if digest is None or expected is None or not hmac.compare_digest(digest, expected):
                return None
            return Superadmin(digest)
        try:
            tenant = await self._signin.tenants.get(realm)
        except NotFound:
            return None  # the database was restored to a time before this tenant
        if session.method == "oidc":
            key: Key | None = Key(
                session.person, cast("Scope", session.scope), None, (), session.expires_at
            )
        else:
            key = None if digest is None else await tenant.find_key(digest)
        if key is None or not key.live(now) or not tenant.active:
            return None
        return Caller(tenant, key, digest, partial(self._lives, token))

    async def _touch(self, token: SessionToken, now: int) -> None:
        async def work(tx: Transaction) -> None:
            await queries.touch_session(tx.connection, tx.tenant_id, token.digest, now, now - TOUCH)

        try:
            await self._signin.store.write(token.realm, work)
        except Unavailable as error:
            # A full disk is when an operator wants to look. The session ends at its idle limit.
            _log.warning("the use of a session of the console can't be noted: %s", error.message)

    async def _forget_ended(self, realm: str) -> None:
        """Delete the sessions that have ended, so that a clock that is set back later does not
        revive them."""
        try:
            await forget_ended_sessions(self._signin, realm)
        except Unavailable as error:
            _log.warning("ended sessions of the console can't be deleted: %s", error.message)


async def forget_ended_sessions(signin: SigningIn, realm: str) -> None:
    """Delete the sessions that have reached a time limit, and the sign-in links that expired an
    hour ago. Until then, a browser with such a link is told that it has expired."""

    async def work(tx: Transaction) -> None:
        idle = last_idle(signin.settings, tx.now)
        await queries.delete_ended_sessions(tx.connection, tx.tenant_id, tx.now, idle)
        await queries.delete_expired_links(tx.connection, tx.tenant_id, tx.now - 60 * MINUTE)

    await signin.store.write(realm, work)


def last_idle(settings: Settings, now: int) -> int:
    """Return the time at or before which a session was last seen if it has been idle for too long
    by now."""
    return now - settings.console_idle_minutes * MINUTE


def _is_granted(settings: Settings, realm: str, session: ConsoleSession) -> bool:
    """Return whether the settings still grant this session's scope to the group by which it
    began."""
    provider = settings.oidc
    if provider is None or session.issuer != provider.issuer or session.granted_by is None:
        return False
    tenant_id = None if realm == SUPERADMIN_REALM else realm
    return GroupGrant(session.granted_by, session.scope, tenant_id) in provider.groups.grants


def _in_time(session: ConsoleSession, settings: Settings, now: int) -> bool:
    # A use in the future means that the clock was set back. How long the session was idle is not
    # known then, so it ends.
    return (
        session.expires_at > now
        and session.seen_at > last_idle(settings, now)
        and session.seen_at <= now + AHEAD
    )


ALLOWED = frozenset(get_args(ConsoleScope))
HOUR = 3_600_000_000  # microseconds


class SignIn(NamedTuple):
    """A person who signs in, and the method. `issuer`, `subject` and `granted_by`, the group that
    gave the scope, are set for OpenID Connect only. `browser` is a short label
    (`requests.browser`)."""

    caller: Caller | Superadmin
    method: SignInMethod
    browser: str
    issuer: str | None = None
    subject: str | None = None
    granted_by: str | None = None


class NewSession(NamedTuple):
    """A session that has just begun. `token` is the cookie's value, which is only available
    here."""

    token: SessionToken
    session: ConsoleSession


async def begin_session(
    signin: SigningIn, who: SignIn, admit: Callable[[Transaction], Awaitable[None]] | None = None
) -> NewSession:
    """Begin a console session. `admit` runs in the session's transaction, and may raise to refuse
    it. Raise `Forbidden` if the caller's scope is not one for people."""
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
        await queries.delete_ended_sessions(tx.connection, tx.tenant_id, tx.now, idle)
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
        await queries.add_session(tx.connection, tx.tenant_id, session)
        change = ObjectChange(None, asdict(shown_console_session(session)))
        await _log_session(signin, tx, "console.signed_in", session, caller.by, change)
        return session

    return NewSession(token, await signin.store.write(token.realm, work))


async def end_session(
    signin: SigningIn, realm: str, session_id: str, what: str, by: str, person: str | None = None
) -> ConsoleSession | None:
    """End a session at once, in every process. If `person` is given, only a session of that person
    is ended. Return None if there is no such session."""

    async def work(tx: Transaction) -> ConsoleSession | None:
        session = await queries.mark_session_ended(tx.connection, tx.tenant_id, session_id, person)
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
        _log.info("%s: %s, session `%s`%s", what, name, session_id, _signed_in_by(session))
        return
    detail = {"method": session.method, "scope": session.scope, "person": session.person}
    await signin.changes.record(tx, what, session.session_id, by, detail, change)


def _signed_in_by(session: ConsoleSession) -> str:
    """Describe the provider and group by which a person signed in, for the log. Empty for a session
    that a key began."""
    if session.method != "oidc":
        return ""
    return f", subject `{session.subject}` of `{session.issuer}`, group `{session.granted_by}`"
