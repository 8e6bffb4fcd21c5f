"""Which namespaces a request to Pinecone concerns, and what a page that goes on was begun for.
Knows paths, queries and bodies; knows no route.
"""

from collections.abc import Callable

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.pinecone.filter import Body
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.document_levels import expect_object
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_members import read_members, read_parameters
from sidecar.settings.model import Source

DEFAULT = "__default__"
ASSISTANT = "assistant"


class PineconeSources:
    """One index, and which pages of it were begun."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._pages = Continuations(monotonic)

    def of_path(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace that the path names."""
        return (self._of(asked.path_params[0]),)

    def of_query(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace that the query names, and what a page was begun for."""
        name, token = read_parameters(asked.target.query, "namespace", "paginationToken")
        return _each(self._of(name), *self._begun(asked, token))

    def of_body(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace that the body names, and what a page was begun for."""
        name, token = read_members(asked.body, "namespace", "paginationToken")
        _check_filter(asked.body)
        return _each(self._of(name), *self._begun(asked, token))

    def of_queries(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespaces of a query, and of each of the `queries` that an older API takes."""
        name, queries = read_members(asked.body, "namespace", "queries")
        names = [name]
        for each in [] if queries is None else queries if isinstance(queries, list) else [None]:
            if not isinstance(each, dict):
                raise Malformed("`queries` is not a list of objects")
            asked.budget.charge_parts(1)
            names += read_members(each, "namespace")
        _check_filter(asked.body, "includeMetadata", "id")
        return _each(*map(self._of, names))

    def of_records(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace of a search of records."""
        [query] = read_members(asked.body, "query")
        if not isinstance(query, dict):
            raise Malformed("`query` is not an object")
        _check_filter(query, "id")
        _check_names(asked.body, "fields")
        return (self._of(asked.path_params[0]),)

    def of_documents(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace of a search of documents, and what a page was begun for."""
        [token] = read_members(asked.body, "pagination_token")
        _check_filter(asked.body, "score_by", "ids")
        _check_names(asked.body, "include_fields")
        return _each(self._of(asked.path_params[0]), *self._begun(asked, token))

    def created(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The namespace that is made."""
        [name] = read_members(asked.body, "name")
        return (self._of(name),)

    def of_assistant(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The assistant that the path names: what it has read."""
        return (self._naming.of(ASSISTANT, asked.path_params[0]),)

    def hint(self, asked: RoutedRequest) -> SourceRef | None:
        return self._of(asked.path_params[0]) if asked.path_params else None

    def hint_of_assistant(self, asked: RoutedRequest) -> SourceRef | None:
        return self._naming.of(ASSISTANT, asked.path_params[0])

    def _of(self, name: object) -> SourceRef:
        if name is None or name == "":
            name = DEFAULT
        if not isinstance(name, str):
            raise Malformed("`namespace` is not a name")
        return self._naming.of(name)

    def _begun(self, asked: RoutedRequest, token: object) -> tuple[SourceRef, ...]:
        if token is None or token == "":
            return ()
        if not isinstance(token, str):
            raise Malformed("the page's token is not a text")
        return self._pages.sources_of(token, asked.attribution)

    def _begin(
        self, asked: RoutedRequest, places: tuple[SourceRef, ...], whole: Body
    ) -> tuple[int, bool]:
        """Remembers the next page that an answer names."""
        pagination = whole.get("pagination")
        if pagination is not None:
            token = expect_object(pagination, "page").get("next")
            if isinstance(token, str) and token:
                self._pages.remember(token, asked.attribution, places)
        return 0, False


def _each(*places: SourceRef) -> tuple[SourceRef, ...]:
    return tuple(dict.fromkeys(places))


def _check_filter(body: Body, *names: str) -> None:
    """What narrowing reads is refused where a more lenient reader would read another member."""
    [given, *_] = read_members(body, "filter", *names)
    if given is not None and not isinstance(given, dict):
        raise Malformed("`filter` is not an object")


def _check_names(body: Body, name: str) -> None:
    [given] = read_members(body, name)
    if given is not None and not (
        isinstance(given, list) and all(isinstance(each, str) for each in given)
    ):
        raise Malformed(f"`{name}` is not a list of names")
