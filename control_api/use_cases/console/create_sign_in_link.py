"""Makes a link that signs a browser in as the key that asks for it, once and within ten minutes: so
that the key itself need not be typed or pasted there.

The code is in the URL's fragment, which browsers send to no server and put into no `Referer`.
"""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller, Superadmin, realm_of
from control_api.auth.session_token import SessionToken
from control_api.domain.console_sessions import ALLOWED
from control_api.requests.base import EmptyRequest
from control_api.responses.console import CreatedSignInLink
from control_api.store.queries import sign_in_links
from control_api.store.queries.sign_in_links import SignInLink
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import Forbidden, NotFound

LIFETIME = 600_000_000
"""Microseconds."""


async def create_sign_in_link(
    app: AppContext, caller: Caller | Superadmin, _: EmptyRequest
) -> CreatedSignInLink:
    """Make a link that signs a browser in to the console with the caller's key.

    It works once, for ten minutes, and as long as the key does.
    """
    if not app.settings.console:
        raise NotFound("the console is switched off: SLUICE_CONSOLE is 0")
    digest = caller.digest
    if digest is None or caller.scope not in ALLOWED:
        raise Forbidden("a sign-in link stands for a key, and this session began without one")
    token = SessionToken.new(realm_of(caller), app.entropy(32))

    async def work(tx: Transaction) -> int:
        expires_at = tx.now + LIFETIME
        link = SignInLink(token.digest, caller.by, caller.scope, digest, expires_at)
        await sign_in_links.add(tx.connection, tx.tenant_id, link)
        return expires_at

    expires_at = await app.store.write(token.realm, work)
    return CreatedSignInLink(
        f"{app.console.url}/console/sign-in#code={token.write()}", rfc3339(expires_at)
    )
