"""Puts together what serves the sessions of one `postgres` source. Imported only where such a
source is configured: the parser and the login need libraries that other sidecars don't have."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.addresses import ListenAddress
from sidecar.http.attribution import Attribution
from sidecar.http.client.dialler import Destination
from sidecar.http.client.egress_guard import EgressGuard
from sidecar.http.tls_contexts import client_context, server_context
from sidecar.postgres.startup import ALPN
from sidecar.postgres.upstream import Upstream
from sidecar.protocols.postgres.functions import AllowedFunctions
from sidecar.protocols.postgres.query import Rules
from sidecar.protocols.postgres.relations import RelationNames
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lineage import LineageRecorder
from sidecar.proxy.postgres.judge import Judge
from sidecar.proxy.postgres.server_login import ServerLogins
from sidecar.proxy.postgres.source import PostgresSource
from sidecar.proxy.upstream.client import Reachability
from sidecar.settings.model import NoTls, Source


class Server(NamedTuple):
    """The server of a source: where it is, without TLS; which addresses are allowed; and what is
    told when it can't be reached."""

    destination: Destination
    guard: EgressGuard
    reachability: Reachability


def postgres_source(
    source: Source,
    server: Server,
    authorizer: Authorizer,
    lineage: LineageRecorder,
    who: Attribution,
    limits: ProxyLimits,
    new_id: Callable[[], str],
) -> PostgresSource:
    """Return what serves the sessions of `source`. `who` is the attribution of statements that
    state none; `new_id` makes a UUIDv7."""
    assert source.login is not None  # the settings have checked it
    destination = server.destination
    own_host = ListenAddress(urlsplit(source.upstream).hostname or "", destination.port).loopback
    if not (isinstance(source.tls, NoTls) or own_host):
        destination = destination._replace(context=client_context(source.tls, [ALPN]))
    most = source.result.hold + limits.buffer_bytes
    upstream = Upstream(destination, server.guard, limits.upstream, most)
    names = RelationNames(source)
    logins = ServerLogins(
        upstream, server.reachability, source.login, names.database, source.result
    )
    milliseconds = source.result.statement_seconds * 1000
    rules = Rules(AllowedFunctions(source.functions.allow), {"statement_timeout": milliseconds})
    writes = source.writes == "allow"
    judge = Judge(names, authorizer, lineage, new_id, writes=writes, rules=rules)
    pair = source.listen_tls
    served = None if pair is None else server_context(pair, protocols=[ALPN])
    return PostgresSource(judge, logins, who, source.result, limits, served)
