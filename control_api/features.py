"""Creates the bundles of objects that each feature's operations work with. Starts nothing."""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from control_api.alerts.channels import Alerts, Mail
from control_api.assembly import Parts
from control_api.audit.bundle import Audit
from control_api.console.page import Console
from control_api.decisions.operations import Decisions
from control_api.edge.answers import Document
from control_api.edge.docs_page import render_page
from control_api.edge.openapi import Describer, Description, describe
from control_api.edge.route import Route
from control_api.fleet.bundle import Fleet
from control_api.fleet.isolation import SpoolStarts
from control_api.fleet.set_pages import AgentPages, PageReads
from control_api.log.append import Changes
from control_api.log.tails import EventTails
from control_api.log.tenant_change import TenantChanges
from control_api.metrics.metrics import JobMetrics
from control_api.policy.bundle import Policies
from control_api.registry.bundle import Registry
from control_api.routes import routes_of
from control_api.security.console_settings import ConsoleAddress
from control_api.service import Service
from control_api.sessions.operations import Sessions
from control_api.settings import Settings
from control_api.signin.console_session import SigningIn
from control_api.store.queries.session_rows import SessionClaimer
from control_api.store.store import Store
from control_api.tenants.operations import Tenants
from policies import __version__
from policies.ground.clock import Clock
from policies.ground.masking import MaskingTurns

if TYPE_CHECKING:
    from control_api.signin.provider import IdentityProvider


class Features(NamedTuple):
    """The bundles of objects that the operations of each feature work with."""

    alerts: Alerts
    audit: Audit
    decisions: Decisions
    fleet: Fleet
    policies: Policies
    registry: Registry
    sessions: Sessions
    signin: SigningIn
    tenants: Tenants
    service: Service

    @classmethod
    def on(cls, parts: Parts) -> "Features":
        store, clock, entropy, changes = parts.store, parts.clock, parts.entropy, parts.changes
        settings, instruments, opened = parts.settings, parts.instruments, parts.opened
        tenants = TenantChanges(store, changes, settings)
        policies = Policies(
            store,
            clock,
            entropy,
            changes,
            settings,
            settings.policy_dir,
            parts.analyses,
            parts.impact,
            instruments.jobs.reloads,
        )
        claims = instruments.decisions.sessions
        sessions = Sessions(store, clock, changes, SessionClaimer(store), parts.publishing, claims)
        return cls(
            alerts=_alerts(settings, changes, store, instruments.jobs),
            audit=Audit(
                store,
                clock,
                entropy,
                changes,
                tenants,
                parts.checkpoints,
                parts.ring,
                EventTails(store, parts.stopping),
                parts.asked_logs,
                parts.folding,
                settings.witnesses,
                settings.witness_quorum,
                parts.stopping,
            ),
            decisions=Decisions(
                store,
                clock,
                entropy,
                changes,
                opened.log,
                MaskingTurns(clock.monotonic, partial(asyncio.sleep, 0), asyncio.Event),
                sessions,
                parts.isolation,
                instruments.decisions.decided,
                parts.tracer,
            ),
            fleet=Fleet(
                store,
                clock,
                changes,
                opened.installed.epoch,
                parts.ring,
                opened.log.heads,
                parts.enrolments,
                parts.reports,
                parts.isolation,
                PageReads(store),
                AgentPages(store),
                SpoolStarts(store, clock, settings.new_spools_per_day),
                sessions,
                settings.ingest_max_age,
                instruments.http.waiting,
                instruments.decisions.ingested,
                parts.stopping,
            ),
            policies=policies,
            registry=Registry(store, clock, entropy, changes),
            sessions=sessions,
            signin=SigningIn(
                store,
                clock,
                entropy,
                changes,
                settings,
                _console(settings, entropy),
                parts.tenants,
                _identity_provider(settings, clock),
                instruments.http.refusals,
            ),
            tenants=Tenants(store, clock, entropy, changes, tenants, settings, policies),
            service=Service(
                store,
                parts.registry,
                parts.peer_metrics,
                Describer(partial(_description, routes_of(settings))).describe,
                parts.verification,
                settings.console,
                parts.stopping,
            ),
        )

    def console(self, parts: Parts) -> Console:
        return Console(
            parts.clock,
            self.signin.address,
            parts.analyses,
            parts.instruments,
            self.signin,
            self.audit,
            self.tenants,
        )


def _alerts(settings: Settings, changes: Changes, store: Store, metrics: JobMetrics) -> Alerts:
    server, sender, hosts = settings.smtp_url, settings.smtp_from, settings.webhook_allow
    mail = None if server is None or sender is None else Mail(server, sender)
    return Alerts(store, changes.clock, changes.entropy, changes, mail, hosts, metrics)


def _console(settings: Settings, entropy: Callable[[int], bytes]) -> ConsoleAddress:
    """Return the address under which the console is served. Raise `UnusableFile` if the file that
    holds it can't be used."""
    if settings.console_url is not None:
        return ConsoleAddress.given(settings.console_url)
    if settings.tls is not None or not settings.console:
        return ConsoleAddress.missing()
    return ConsoleAddress.own(settings.data_dir, settings.control_listen, entropy)


def _identity_provider(settings: Settings, clock: Clock) -> "IdentityProvider | None":
    if settings.oidc is None:
        return None
    from control_api.signin.provider import (
        IdentityProvider,  # imported late: an extra of the package
    )

    return IdentityProvider(settings.oidc, clock)


@cache
def _description(routes: tuple[Route, ...]) -> Description:
    # Cached for the process, because it depends only on the routes.
    openapi = describe(routes, __version__)
    return Description(Document("application/json", openapi), render_page(openapi))
