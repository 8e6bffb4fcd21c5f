"""Routes for Amazon S3 and compatible servers (`protocols/RULES.md`, S3; the operations in
botocore's model).

The operation of a request follows from its method, from whether its path names a key, a bucket or
neither, and from the names of its query's parameters (`?acl`). A read is judged by the key, and a
list by the requested prefix. Requests are signed with the sidecar's own credentials (R9).
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from policies.ground.errors import Malformed
from sidecar.http.request_target import Target, encode_segment
from sidecar.protocols.protocol import (
    FetchedResponse,
    Fields,
    OutgoingRequest,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    SourceProtocol,
)
from sidecar.protocols.s3.lists import error_response, keys_to_delete
from sidecar.protocols.s3.sources import S3Sources, grants_access, passes
from sidecar.protocols.shared.aws_signing import AwsSigner
from sidecar.protocols.shared.strict_queries import parse_query
from sidecar.settings.model import Source

S3Resource = Literal["service", "bucket", "object"]
"""The kind of resource that the path of a request names."""

_PATTERNS = {"service": "/", "bucket": "/{bucket}", "object": "/{bucket}/{key}"}


class S3Operation(NamedTuple):
    """One operation of S3: its route, and the requests that it matches. `resource` is the kind of
    resource that the path names; `required` are parameters that the query must have."""

    route: ProtocolRoute
    resource: S3Resource
    required: frozenset[str]
    allowed: frozenset[str]
    """All parameters that the query may have, including those in `required`."""


def operation(
    methods: str,
    resource: S3Resource,
    required: str,
    optional: str,
    route_class: RouteClass,
    **more: Any,
) -> S3Operation:
    """Return an `S3Operation`. `required` and `optional` are names of query parameters separated by
    spaces; `more` is passed to `ProtocolRoute`."""
    needed = required.split()
    pattern = _PATTERNS[resource] + ("?" + "&".join(needed) if needed else "")
    route = ProtocolRoute(methods, pattern, route_class, **more)
    # Clients name the operation in `x-id`, which S3 ignores.
    allowed = frozenset((*needed, *optional.split(), "x-id"))
    return S3Operation(route, resource, frozenset(needed), allowed)


class S3Operations:
    """A table of S3 operations. The first one that matches a request wins."""

    def __init__(self, rows: Iterable[S3Operation]) -> None:
        self._rows: dict[tuple[str, S3Resource], list[S3Operation]] = {}
        for each in rows:
            for method in each.route.methods.split():
                self._rows.setdefault((method, each.resource), []).append(each)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """Return the route of a request, with the bucket and the key as path parameters, each "" if
        the path does not name it; None if no operation matches. Raises `Malformed` for an ambiguous
        query."""
        bucket, *rest = target.segments
        # A trailing slash is part of a key (`reports/`), but `/lake/` is the bucket.
        key = "/".join(rest)
        resource: S3Resource = "object" if key else "bucket" if bucket else "service"
        parameters = frozenset(parse_query(target.query))
        for each in self._rows.get((method, resource), ()):
            # INVARIANT: the row knows every parameter. S3 may act on one that the row doesn't know,
            # and the request would then be another operation.
            if each.required <= parameters <= each.allowed:
                return RouteMatch(each.route, (bucket, key))
        return None


_ERROR_CODES = {
    400: "InvalidRequest", 403: "AccessDenied", 408: "RequestTimeout", 503: "ServiceUnavailable",
}  # fmt: skip


class S3(S3Sources, SourceProtocol):
    signs_requests = True
    # A virtual-hosted request names its bucket in `Host`.
    uses_host = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source)
        self._signer = AwsSigner(source.aws, "s3", monotonic)
        # Hosts directly below these domains name a bucket: the data source's own name, and the
        # wildcard names by which agents reach it.
        own = urlsplit(source.upstream).hostname
        called = (name.partition(":")[0] for name in source.hosts if name.startswith("*."))
        self._domains = tuple(name.lower() for name in (f".{own}", *(n[1:] for n in called)))

    def apply_host(self, host: str, target: Target) -> Target:
        # Without the port. The colons of an IPv6 address are inside its brackets.
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.lower().removesuffix(".")
        for domain in self._domains:
            bucket = name.removesuffix(domain)
            if not bucket:
                raise Malformed("the header `host` does not name a bucket")
            if bucket != name:
                # Forwarded in this form too, so that S3 finds the bucket where it was judged.
                path = f"/{encode_segment(bucket)}{target.path}"
                return Target(path, target.query, (bucket, *target.segments))
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return _TABLE.match(method, target)

    def refine_write(self, request: RoutedRequest) -> ProtocolRoute | None:
        """Return the route of a write. It is a route that is always denied if a header changes more
        than the object, such as who may read it."""
        # The headers of an upload do what `?acl` and `?tagging` do, which are closed.
        if any(grants_access(name.lower(), value) for name, value in request.fields):
            return _GRANTING_WRITE
        found = self.match(request.method, request.target)
        return None if found is None else found.route

    # S3's clients show an error only if it has S3's own form.
    def render_refusal(
        self, request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        code = _ERROR_CODES.get(refusal.status, "InternalError")
        if refusal.status == 400 and self._lacks_body(request):
            code = "MalformedXML"
        body = error_response(code, refusal.message, refusal.decision)
        return FetchedResponse(refusal.status, "", [(b"Content-Type", b"application/xml")], body)

    def _lacks_body(self, request: RoutedRequest | None) -> bool:
        if request is None or request.body is not None:
            return False
        found = self.match(request.method, request.target)
        return found is not None and found.route.parse_body is not None

    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        return await self._signer.sign(outgoing, passes)


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN
_READ = "GET HEAD"
_object, _bucket = {"find_sources": S3.of_object}, {"find_sources": S3.of_bucket}
_list = {"find_sources": S3.of_prefix, "plan_forward": S3.plan_list}
_write = {"find_sources": S3.of_written, "hint_source": S3.hint, "refine": S3.refine_write}
_remove = {"find_sources": S3.of_object, "hint_source": S3.hint}
_PAGE = "delimiter encoding-type prefix"
_RESPONSE_HEADERS = (
    "response-cache-control response-content-disposition response-content-encoding "
    "response-content-language response-content-type response-expires"
)

# A bucket's settings decide who may read, where copies go and what is kept, so reading them is
# closed too.
_SETTINGS = (
    "abac accelerate acl cors encryption lifecycle logging notification ownershipControls policy "
    "publicAccessBlock replication requestPayment tagging website"
)

OPERATIONS = (
    operation(
        _READ, "object", "", f"versionId partNumber {_RESPONSE_HEADERS}", _RETRIEVE, **_object,
    ),
    operation("GET", "object", "torrent", "", _RETRIEVE, **_object),
    operation("GET", "object", "attributes", "versionId", _RETRIEVE, **_object),
    operation("POST", "object", "select select-type", "", _RETRIEVE, **_object),
    operation("GET", "object", "annotation annotationName", "versionId", _RETRIEVE, **_object),
    operation(
        "GET", "object", "annotation",
        "versionId max-annotation-results annotation-prefix continuation-token",
        _METADATA, **_object,
    ),
    operation("GET", "object", "tagging", "versionId", _METADATA, **_object),
    operation("GET", "object", "legal-hold", "versionId", _METADATA, **_object),
    operation("GET", "object", "retention", "versionId", _METADATA, **_object),
    operation("GET", "object", "uploadId", "max-parts part-number-marker", _METADATA, **_object),
    operation("PUT", "object", "", "", _WRITE, **_write),
    operation("PUT", "object", "partNumber uploadId", "", _WRITE, **_write),
    operation("POST", "object", "uploads", "", _WRITE, **_write),
    operation("POST", "object", "uploadId", "", _WRITE, **_write),
    operation("DELETE", "object", "", "versionId", _WRITE, **_remove),
    operation("DELETE", "object", "uploadId", "", _WRITE, **_remove),
    # These change who may read an object, how long it is kept, its name, or where a copy goes.
    operation("GET PUT", "object", "acl", "versionId", _ADMIN),
    operation("PUT DELETE", "object", "tagging", "versionId", _ADMIN),
    operation("PUT", "object", "legal-hold", "versionId", _ADMIN),
    operation("PUT", "object", "retention", "versionId", _ADMIN),
    operation("PUT", "object", "encryption", "versionId", _ADMIN),
    operation("PUT", "object", "renameObject", "", _ADMIN),
    operation("PUT DELETE", "object", "annotation", "versionId annotationName", _ADMIN),
    operation("POST", "object", "restore", "versionId", _BULK),
    operation("GET", "bucket", "", f"{_PAGE} marker max-keys", _METADATA, **_list),
    operation(
        "GET", "bucket", "list-type",
        f"{_PAGE} max-keys continuation-token fetch-owner start-after", _METADATA, **_list,
    ),
    operation(
        "GET", "bucket", "versions", f"{_PAGE} key-marker max-keys version-id-marker",
        _METADATA, **_list,
    ),
    operation(
        "GET", "bucket", "uploads", f"{_PAGE} key-marker max-uploads upload-id-marker",
        _METADATA, **_list,
    ),
    operation("HEAD", "bucket", "", "", _METADATA, **_bucket),
    operation("GET", "bucket", "location", "", _METADATA, **_bucket),
    operation("GET", "bucket", "versioning", "", _METADATA, **_bucket),
    operation("GET", "bucket", "object-lock", "", _METADATA, **_bucket),
    # Its body names the keys, so it is read before it is judged.
    operation(
        "POST", "bucket", "delete", "", _WRITE,
        parse_body=keys_to_delete, find_sources=S3.of_deleted, hint_source=S3.hint,
        names_keys=True,
    ),
    # Issues credentials.
    operation("GET", "bucket", "session", "", _ADMIN),
    # An upload by an HTML form, which names its key in the body; or an Object Lambda's response.
    operation("POST", "bucket", "", "", _ADMIN),
    operation("PUT DELETE", "bucket", "", "", _ADMIN),
    operation("PUT", "bucket", "versioning", "", _ADMIN),
    operation("PUT", "bucket", "object-lock", "", _ADMIN),
    *(operation("GET PUT DELETE", "bucket", each, "", _ADMIN) for each in _SETTINGS.split()),
    operation("GET", "bucket", "policyStatus", "", _ADMIN),
    *(
        operation("GET PUT DELETE", "bucket", each, "id continuation-token", _ADMIN)
        for each in ("analytics", "intelligent-tiering", "inventory", "metrics")
    ),
    *(
        operation("GET POST PUT DELETE", "bucket", each, "", _ADMIN)
        for each in (
            "metadataConfiguration", "metadataTable", "metadataAnnotationTable",
            "metadataInventoryTable", "metadataJournalTable",
        )
    ),
    operation(
        "GET", "service", "",
        "max-buckets max-directory-buckets continuation-token prefix bucket-region",
        _METADATA, compose_response=S3.list_buckets,
    ),
)  # fmt: skip
"""The operations of S3. Any other request is denied as `unclassified_route`."""

_GRANTING_WRITE = ProtocolRoute("PUT POST", "/{bucket}/{key} with rights, tags or locks", _ADMIN)

_TABLE = S3Operations(OPERATIONS)
