"""Signs a browser in by a one-time link."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller, Superadmin
from control_api.auth.session_token import SessionToken
from control_api.domain.console_sessions import NewSession, SignIn, begin_session
from control_api.metrics.labels import RefusalReason
from control_api.store.queries import sign_in_links
from control_api.store.queries.sign_in_links import SignInLink
from control_api.store.schema.console import SUPERADMIN_REALM
from control_api.store.transaction import Transaction
from policies.ground.errors import Forbidden


async def use_sign_in_link(app: AppContext, code: str, browser: str) -> NewSession:
    """Begin a session of the key that made the link. Raises `Forbidden` if the link is not valid,
    has expired or was used, or if its key is no longer live."""
    token = SessionToken.read(code)
    link = None if token is None else await _stored(app, token)
    if token is None or link is None:
        raise _refused(app, RefusalReason.unknown, "this sign-in link is not valid")
    used = token
    _refuse_spent(app, link, app.clock.now())
    caller = await _maker(app, token.realm, link)

    async def admit(tx: Transaction) -> None:
        # In the transaction that begins the session: of two browsers, one gets in.
        if not await sign_in_links.use(tx.connection, tx.tenant_id, used.digest, tx.now):
            raise _refused(app, RefusalReason.expired, _USED)

    return await begin_session(app, SignIn(caller, "link", browser), admit)


_USED = "this sign-in link was used already: each one works once"
_EXPIRED = "this sign-in link has expired: it works for ten minutes"


async def _stored(app: AppContext, token: SessionToken) -> SignInLink | None:
    async with app.store.reading(token.realm) as connection:
        return await sign_in_links.find(connection, token.realm, token.digest)


def _refuse_spent(app: AppContext, link: SignInLink, now: int) -> None:
    if link.used_at is not None:
        raise _refused(app, RefusalReason.expired, _USED)
    if link.expires_at <= now:
        raise _refused(app, RefusalReason.expired, _EXPIRED)


async def _maker(app: AppContext, realm: str, link: SignInLink) -> Caller | Superadmin:
    if realm == SUPERADMIN_REALM:
        # If the superadmin's key was replaced since, `SessionReader` refuses the session.
        return Superadmin(link.key_digest)
    tenant = await app.tenants.get(realm)
    key = await tenant.find_key(link.key_digest)
    if key is None or not key.live(app.clock.now()) or not tenant.active:
        raise _refused(app, RefusalReason.expired, "the key that made this link is no longer valid")
    return Caller(tenant, key, link.key_digest)


def _refused(app: AppContext, why: RefusalReason, message: str) -> Forbidden:
    app.instruments.http.refusals.labels(why).inc()
    return Forbidden(message)
