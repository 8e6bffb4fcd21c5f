"""Signs a person in by OpenID Connect: the provider says who it is, and the settings what the
person's groups may do."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from control_api.app_context import AppContext
from control_api.auth.principal import Caller, Superadmin
from control_api.domain.console_sessions import NewSession, SignIn, begin_session
from control_api.metrics.labels import RefusalReason
from control_api.oidc.attempt import Attempt
from control_api.oidc.person import Person
from control_api.oidc.refusal import ProviderUnavailable, Refusal, SignInRefused, shown
from control_api.security.group_grants import GroupGrant
from control_api.store.schema.console import SUPERADMIN_REALM
from policies.definitions.model import Key, Scope
from policies.ground.errors import NotFound

_SHOWN_GROUPS = 20
_log = logging.getLogger("sluice.console")


class Offer(NamedTuple):
    """Where a person may sign in: `realm` is a tenant's id, or that of the superadmin."""

    realm: str
    grant: GroupGrant
    caller: Caller | Superadmin


async def begin_at_provider(app: AppContext, attempt: Attempt) -> str:
    """The address at the provider where the browser goes to sign in. Raises `NotFound` without a
    provider, or `ProviderUnavailable`."""
    if app.identity_provider is None:
        raise NotFound("no identity provider is configured: sign in with an API key")
    return await app.identity_provider.authorization_url(attempt)


async def sign_in_by_provider(
    app: AppContext, answer: Mapping[str, str], attempt: Attempt | None, browser: str
) -> NewSession | list[Offer]:
    """Begin the session of the person that the provider's `answer` is about. Returns the offers if
    there are several, and the attempt chooses none. Raises `SignInRefused`,
    `ProviderUnavailable`, or `NotFound` without a provider."""
    if app.identity_provider is None:
        raise NotFound("no identity provider is configured: sign in with an API key")
    try:
        person = await app.identity_provider.person(answer, attempt)
        offers = await _offers(app, person)
    except SignInRefused as error:
        app.instruments.http.refusals.labels(RefusalReason.unknown).inc()
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
    return await begin_session(app, who)


async def _offers(app: AppContext, person: Person) -> list[Offer]:
    """What the settings give to the person's groups, in tenants that exist and are active. Raises
    `SignInRefused` if that is nothing."""
    provider = app.identity_provider
    assert provider is not None
    offers = []
    for grant in provider.settings.groups.strongest(person.groups):
        caller = await _caller(app, person, grant)
        if caller is not None:
            offers.append(Offer(grant.tenant_id or SUPERADMIN_REALM, grant, caller))
    if not offers:
        named = ", ".join(f"`{shown(each)}`" for each in sorted(person.groups)[:_SHOWN_GROUPS])
        raise SignInRefused(
            Refusal.groups,
            f"the identity provider knows you as `{person.name}`, but none of your groups may use "
            f"this console. Ask its operator. Your groups: {named or 'none'}",
        )
    return offers


async def _caller(app: AppContext, person: Person, grant: GroupGrant) -> Caller | Superadmin | None:
    if grant.tenant_id is None:
        return Superadmin(None, by=person.name)
    try:
        tenant = await app.tenants.get(grant.tenant_id)
    except NotFound:
        _log.warning("SLUICE_OIDC_GROUPS names the tenant `%s`, which is unknown", grant.tenant_id)
        return None
    if not tenant.active:
        return None
    scope: Scope = "admin" if grant.scope == "admin" else "read"
    # Made for this request only: the session reader makes it anew from the session's row.
    return Caller(tenant, Key(person.name, scope, None, (), None), None)


async def sign_out_address(app: AppContext) -> str | None:
    """The provider's page that ends a browser's session there; None if it has none. Raises
    `NotFound` without a provider, or `ProviderUnavailable`."""
    if app.identity_provider is None:
        raise NotFound("no identity provider is configured")
    return await app.identity_provider.sign_out_url(f"{app.settings.console_url}/console/sign-in")
