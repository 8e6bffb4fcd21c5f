"""Signs people in to the console, by a key, a one-time link or OpenID Connect, and lists and ends
console sessions.

The code of a link is in the URL's fragment, which browsers send to no server and put into no
`Referer`. The key that a person signs in with is not kept anywhere.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from control_api.auth import Caller, Superadmin, realm_of
from control_api.edge.answers import Empty, Page, page_of
from control_api.edge.requests import EmptyRequest, Identifier, ListRequest, RequestModel
from control_api.metrics.labels import RefusalReason
from control_api.security.console_settings import GroupGrant
from control_api.signin import queries
from control_api.signin.attempt import (
    Attempt,
    Person,
    ProviderUnavailable,
    SignInRefusal,
    SignInRefused,
    shown,
)
from control_api.signin.console_session import (
    ALLOWED,
    NewSession,
    SessionToken,
    SignIn,
    SigningIn,
    Visitor,
    begin_session,
    end_session,
    last_idle,
)
from control_api.signin.models import (
    ConsoleSessionResponse,
    CreatedSignInLink,
    shown_console_session,
)
from control_api.signin.queries import SignInLink
from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.transaction import Transaction
from policies.definitions.model import Key, Scope
from policies.ground.canonical import rfc3339
from policies.ground.errors import Forbidden, NotFound

LIFETIME = 600_000_000
"""The microseconds for which a sign-in link is valid."""


async def create_sign_in_link(
    signin: SigningIn, caller: Caller | Superadmin, _: EmptyRequest
) -> CreatedSignInLink:
    """Make a link that signs a browser in to the console with the caller's key.

    It works once, for ten minutes, and as long as the key does.
    """
    if not signin.settings.console:
        raise NotFound("the console is switched off: SLUICE_CONSOLE is 0")
    digest = caller.digest
    if digest is None or caller.scope not in ALLOWED:
        raise Forbidden("a sign-in link stands for a key, and this session began without one")
    token = SessionToken.new(realm_of(caller), signin.entropy(32))

    async def work(tx: Transaction) -> int:
        expires_at = tx.now + LIFETIME
        link = SignInLink(token.digest, caller.by, caller.scope, digest, expires_at)
        await queries.add_link(tx.connection, tx.tenant_id, link)
        return expires_at

    expires_at = await signin.store.write(token.realm, work)
    return CreatedSignInLink(
        f"{signin.address.url}/console/sign-in#code={token.write()}", rfc3339(expires_at)
    )


class ConsoleSessionRequest(RequestModel):
    """A request about one console session, which the path names by its id."""

    session_id: Identifier


async def revoke_console_session(
    signin: SigningIn, caller: Caller | Superadmin, request: ConsoleSessionRequest
) -> Empty:
    """End a session of the console at once, in every process. With a key of the scope `read`, only
    those that began with the same key."""
    what, session_id = "console.session_revoked", request.session_id
    person = caller.by if caller.scope == "read" else None
    if await end_session(signin, realm_of(caller), session_id, what, caller.by, person) is None:
        raise NotFound(f"no such session of the console: `{session_id}`")
    return Empty()


async def sign_out(signin: SigningIn, visitor: Visitor) -> None:
    """End the visitor's own session. If it has ended already, nothing changes."""
    caller, session_id = visitor.caller, visitor.session.session_id
    await end_session(signin, realm_of(caller), session_id, "console.signed_out", caller.by)


async def list_console_sessions(
    signin: SigningIn, caller: Caller | Superadmin, request: ListRequest
) -> Page[ConsoleSessionResponse]:
    """List the sessions of the console that have not ended, newest first.

    A session whose key was revoked or has expired is listed until its own limits, but dead.
    """
    realm, after, now = realm_of(caller), request.after(int, str), signin.clock.now()
    live = (now, last_idle(signin.settings, now))
    async with signin.store.reading(realm) as connection:
        rows = await queries.page_of_sessions(connection, realm, live, after, request.limit + 1)
    return page_of(
        rows, request.limit, lambda row: (row.created_at, row.session_id), shown_console_session
    )


async def sign_in_with_key(
    signin: SigningIn, caller: Caller | Superadmin, browser: str
) -> NewSession:
    """Begin a session for a caller that has just presented its key."""
    return await begin_session(signin, SignIn(caller, "key", browser))


_SHOWN_GROUPS = 20
_log = logging.getLogger("sluice.console")


class Offer(NamedTuple):
    """A realm in which a person may sign in: `realm` is a tenant's id, or the superadmin's
    realm."""

    realm: str
    grant: GroupGrant
    caller: Caller | Superadmin


async def begin_at_provider(signin: SigningIn, attempt: Attempt) -> str:
    """Return the URL at the identity provider where the browser goes to sign in. Raise `NotFound`
    if there is no provider, and `ProviderUnavailable` if it can't be used."""
    if signin.identity_provider is None:
        raise NotFound("no identity provider is configured: sign in with an API key")
    return await signin.identity_provider.authorization_url(attempt)


async def sign_in_by_provider(
    signin: SigningIn, answer: Mapping[str, str], attempt: Attempt | None, browser: str
) -> NewSession | list[Offer]:
    """Begin the session of the person whom the provider's `answer` is about. If the person may sign
    in to several realms, and the attempt chose none, return the offers instead. Raise
    `SignInRefused` if the person may not sign in, `ProviderUnavailable` if the provider can't be
    used, and `NotFound` if there is none."""
    if signin.identity_provider is None:
        raise NotFound("no identity provider is configured: sign in with an API key")
    try:
        person = await signin.identity_provider.person(answer, attempt)
        offers = await _offers(signin, person)
    except SignInRefused as error:
        signin.refusals.labels(RefusalReason.unknown).inc()
        _log.warning("sign-in by OpenID Connect refused (%s): %s", error.reason, error.message)
        raise
    except ProviderUnavailable as error:
        _log.error("sign-in by OpenID Connect failed: %s", error.message)
        raise
    chosen = [each for each in offers if attempt is not None and each.realm == attempt.realm]
    found = chosen or offers
    if len(found) > 1:
        return found
    _, grant, caller = found[0]
    who = SignIn(caller, "oidc", browser, person.issuer, person.subject, grant.group)
    return await begin_session(signin, who)


async def _offers(signin: SigningIn, person: Person) -> list[Offer]:
    """Return the realms that the settings offer to the person's groups, without tenants that don't
    exist or are deactivated. Raise `SignInRefused` if there are none."""
    provider = signin.identity_provider
    assert provider is not None
    offers = []
    for grant in provider.settings.groups.strongest(person.groups):
        caller = await _caller(signin, person, grant)
        if caller is not None:
            offers.append(Offer(grant.tenant_id or SUPERADMIN_REALM, grant, caller))
    if not offers:
        named = ", ".join(f"`{shown(each)}`" for each in sorted(person.groups)[:_SHOWN_GROUPS])
        raise SignInRefused(
            SignInRefusal.groups,
            f"the identity provider knows you as `{person.name}`, but none of your groups may use "
            f"this console. Ask its operator. Your groups: {named or 'none'}",
        )
    return offers


async def _caller(
    signin: SigningIn, person: Person, grant: GroupGrant
) -> Caller | Superadmin | None:
    if grant.tenant_id is None:
        return Superadmin(None, by=person.name)
    try:
        tenant = await signin.tenants.get(grant.tenant_id)
    except NotFound:
        _log.warning("SLUICE_OIDC_GROUPS names the tenant `%s`, which is unknown", grant.tenant_id)
        return None
    if not tenant.active:
        return None
    scope: Scope = "admin" if grant.scope == "admin" else "read"
    # Made for this request only: the session reader makes it anew from the session's row.
    return Caller(tenant, Key(person.name, scope, None, (), None), None)


async def sign_out_address(signin: SigningIn) -> str | None:
    """Return the URL of the provider's page that ends the browser's session there, or None if the
    provider has no such page. Raise `NotFound` if there is no provider, and `ProviderUnavailable`
    if it can't be used."""
    if signin.identity_provider is None:
        raise NotFound("no identity provider is configured")
    return await signin.identity_provider.sign_out_url(
        f"{signin.settings.console_url}/console/sign-in"
    )


async def use_sign_in_link(signin: SigningIn, code: str, browser: str) -> NewSession:
    """Begin a session that acts as the key which made the link. Raise `Forbidden` if the link is
    not valid, has expired or was used, or if that key is no longer live."""
    token = SessionToken.read(code)
    link = await _live_link(signin, token)
    if token is None or link is None:
        raise _refused(signin, RefusalReason.unknown, "this sign-in link is not valid")
    used = token
    caller = await _maker(signin, token.realm, link)

    async def admit(tx: Transaction) -> None:
        # In the transaction that begins the session: of two browsers, one gets in.
        if not await queries.use_link(tx.connection, tx.tenant_id, used.digest, tx.now):
            raise _refused(signin, RefusalReason.expired, _USED)

    return await begin_session(signin, SignIn(caller, "link", browser), admit)


_USED = "this sign-in link was used already: each one works once"


async def _live_link(signin: SigningIn, token: SessionToken | None) -> SignInLink | None:
    if token is None:
        return None
    async with signin.store.reading(token.realm) as connection:
        link = await queries.find_link(connection, token.realm, token.digest)
    if link is not None and link.used_at is not None:
        raise _refused(signin, RefusalReason.expired, _USED)
    if link is not None and link.expires_at <= signin.clock.now():
        expired = "this sign-in link has expired: it works for ten minutes"
        raise _refused(signin, RefusalReason.expired, expired)
    return link


async def _maker(signin: SigningIn, realm: str, link: SignInLink) -> Caller | Superadmin:
    if realm == SUPERADMIN_REALM:
        # If the superadmin's key was replaced since, `SessionReader` refuses the session.
        return Superadmin(link.key_digest)
    tenant = await signin.tenants.get(realm)
    key = await tenant.find_key(link.key_digest)
    if key is None or not key.live(signin.clock.now()) or not tenant.active:
        raise _refused(
            signin, RefusalReason.expired, "the key that made this link is no longer valid"
        )
    return Caller(tenant, key, link.key_digest)


def _refused(signin: SigningIn, why: RefusalReason, message: str) -> Forbidden:
    signin.refusals.labels(why).inc()
    return Forbidden(message)
