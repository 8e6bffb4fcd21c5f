"""Puts the AuthZEN handlers together, from the settings."""

from collections.abc import Mapping

from policies.ground.clock import Clock
from sidecar.api.route import ApiRoute
from sidecar.api.source_catalog import source_refs
from sidecar.authzen.handlers import Authzen
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.metadata import Signer, metadata_routes
from sidecar.authzen.search.handlers import SearchHandlers
from sidecar.authzen.search.pace import SearchPace
from sidecar.authzen.search.page_token import KEY_BYTES, PageTokens
from sidecar.authzen.search.searches import Searches
from sidecar.enforce import Enforcer
from sidecar.policy_cache.policy_view import AgentDocuments
from sidecar.settings.model import SidecarSettings


def authzen_routes(
    settings: SidecarSettings, enforcer: Enforcer, agents: AgentDocuments, clock: Clock
) -> Mapping[str, ApiRoute]:
    """All routes of AuthZEN: evaluation, search, and the metadata if `authzen.url` is set."""
    mapper = Mapper(settings.authzen, enforcer.speaks_for)
    source_ids = [each.source_id for source in settings.sources for each in source_refs(source)]
    pace = SearchPace(clock.monotonic, enforcer.metrics.evaluate_seconds.count)
    tokens = PageTokens(enforcer.random_bytes(KEY_BYTES), clock.monotonic)
    searches = Searches(enforcer, mapper, agents, source_ids, pace)
    routes = {**Authzen(enforcer, mapper).routes(), **SearchHandlers(searches, tokens).routes()}
    url = settings.authzen.url
    if url is not None:
        routes |= metadata_routes(url, _signer(settings), clock.now())
    return routes


def _signer(settings: SidecarSettings) -> Signer | None:
    path = settings.authzen.signing_key_file
    if path is None:
        return None
    from sidecar.authzen.signing_key import SigningKey  # megabytes, and few sign

    return SigningKey.load(path)
