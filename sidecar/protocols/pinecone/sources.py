"""Finds the namespaces that a Pinecone request concerns, and remembers the namespaces that each
page token was issued for. Knows paths, queries and bodies; knows no routes.
"""

from collections.abc import Callable

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.pinecone.filter import Body
from sidecar.protocols.protocol import Sources
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.responses import expect_object
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import read_members, read_parameters
from sidecar.settings.model import Source

DEFAULT_NAMESPACE = "__default__"
ASSISTANT = "assistant"


class PineconeSources:
    """One index, and the page tokens that it issued."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._pages = Continuations(monotonic)

    def of_path(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the path names."""
        return (self._of(request.path_params[0]),)

    def of_query(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the query names, and those of its page token."""
        # Both are judged, since the agent could state another namespace beside a token.
        name, token = read_parameters(request.target.query, "namespace", "paginationToken")
        return _distinct(self._of(name), *self._page_sources(request, token))

    def of_body(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the body names, and those of its page token."""
        name, token = read_members(request.body, "namespace", "paginationToken")
        _check_filter(request.body)
        return _distinct(self._of(name), *self._page_sources(request, token))

    def of_queries(self, request: RoutedRequest) -> Sources:
        """Return the namespaces of a query, and of each of its `queries`, which an older API
        accepts."""
        name, queries = read_members(request.body, "namespace", "queries")
        names = [name]
        if not isinstance(queries, list | None):
            raise Malformed("`queries` must be a list of objects")
        for each in queries or ():
            if not isinstance(each, dict):
                raise Malformed("`queries` must be a list of objects")
            # Each of them is a search of its own, so it counts as a sub-request.
            request.budget.charge_parts(1)
            names += read_members(each, "namespace")
        _check_filter(request.body, "includeMetadata", "id")
        return _distinct(*map(self._of, names))

    def of_records(self, request: RoutedRequest) -> Sources:
        """Return the namespace of a search of records."""
        [query] = read_members(request.body, "query")
        if not isinstance(query, dict):
            raise Malformed("`query` must be an object")
        _check_filter(query, "id")
        _check_names(request.body, "fields")
        return (self._of(request.path_params[0]),)

    def of_documents(self, request: RoutedRequest) -> Sources:
        """Return the namespace of a search of documents, and those of its page token."""
        [token] = read_members(request.body, "pagination_token")
        _check_filter(request.body, "score_by", "ids")
        _check_names(request.body, "include_fields")
        return _distinct(self._of(request.path_params[0]), *self._page_sources(request, token))

    def of_created(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the body creates."""
        [name] = read_members(request.body, "name")
        return (self._of(name),)

    def of_assistant(self, request: RoutedRequest) -> Sources:
        """Return the assistant that the path names, which stands for all its files."""
        return (self._naming.of(ASSISTANT, request.path_params[0]),)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        return self._of(request.path_params[0])

    def hint_of_assistant(self, request: RoutedRequest) -> SourceRef | None:
        return self._naming.of(ASSISTANT, request.path_params[0])

    def _of(self, name: object) -> SourceRef:
        # To Pinecone, the empty namespace and `__default__` are the same.
        if name is None or name == "":
            name = DEFAULT_NAMESPACE
        if not isinstance(name, str):
            raise Malformed("`namespace` must be a string")
        return self._naming.of(name)

    def _page_sources(self, request: RoutedRequest, token: object) -> Sources:
        # An empty token asks for the first page.
        if token is None or token == "":
            return ()
        if not isinstance(token, str):
            raise Malformed("the page token must be a string")
        return self._pages.sources_of(token, request.attribution)

    def _remember_page(
        self, request: RoutedRequest, sources: Sources, whole: Body
    ) -> tuple[int, bool]:
        """Return a `ResponseStep` that remembers the next page's token."""
        pagination = whole.get("pagination")
        if pagination is not None:
            token = expect_object(pagination, "page").get("next")
            if isinstance(token, str) and token:
                self._pages.remember(token, request.attribution, sources)
        # Nothing was withheld or changed, so this step alone keeps Pinecone's own bytes.
        return 0, False


def _distinct(*sources: SourceRef) -> Sources:
    return tuple(dict.fromkeys(sources))


def _check_filter(body: Body, *names: str) -> None:
    """Check the members that filtering depends on. Raises `Malformed`."""
    # `read_members` refuses a name that a more lenient parser would take for one of them.
    [given, *_] = read_members(body, "filter", *names)
    if given is not None and not isinstance(given, dict):
        raise Malformed("`filter` must be an object")


def _check_names(body: Body, name: str) -> None:
    [given] = read_members(body, name)
    if given is not None and not (
        isinstance(given, list) and all(isinstance(each, str) for each in given)
    ):
        raise Malformed(f"`{name}` must be a list of strings")
