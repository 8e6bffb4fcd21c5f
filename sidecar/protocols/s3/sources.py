"""Finds the keys and buckets that an S3 request concerns, and filters lists of them. Knows header
fields, queries and bodies; knows no routes.
"""

from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardPlan,
    Permits,
    RoutedRequest,
    SourceRef,
    Visibility,
)
from sidecar.protocols.route_table import Sources
from sidecar.protocols.s3.lists import filter_buckets, filter_keys
from sidecar.protocols.s3.names import (
    check_fields,
    check_framing,
    copy_sources,
    expect_bucket,
    expect_key,
)
from sidecar.protocols.shared.aws_query import parse_query
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class S3Sources:
    """The sources of one S3 endpoint."""

    def __init__(self, source: Source) -> None:
        self._naming = SourceNames(source)

    async def of_object(self, request: RoutedRequest) -> Sources:
        """The key that the path names."""
        check_fields(request.fields)
        return (self._source_of(*request.path_params),)

    async def of_bucket(self, request: RoutedRequest) -> Sources:
        """The bucket that the path names."""
        check_fields(request.fields)
        # The bucket itself is the source with an empty key: `s3://<alias>/<bucket>/`.
        return (self._source_of(request.path_params[0], ""),)

    async def of_prefix(self, request: RoutedRequest) -> Sources:
        """The prefix whose keys are listed."""
        # Only the prefix: the keys below it are judged one by one in the response.
        check_fields(request.fields)
        prefix = parse_query(request.target.query).get("prefix", "")
        # No key that a path can name begins with `/`, and some servers read this prefix as none.
        key = "" if prefix == "/" else expect_key(prefix)
        return (self._source_of(request.path_params[0], key),)

    async def of_written(self, request: RoutedRequest) -> Sources:
        """The key that is written, and for a copy the key that is read."""
        check_fields(request.fields, writes=True)
        check_framing(request.fields)
        read = copy_sources(request.fields)
        return tuple(self._source_of(*each) for each in (request.path_params, *read))

    async def of_deleted(self, request: RoutedRequest) -> Sources:
        """The keys that the body names."""
        check_fields(request.fields)
        bucket = request.path_params[0]
        return tuple(self._source_of(bucket, expect_key(key)) for key in request.body)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        """The key or bucket that would be written."""
        # Unchecked, since it only names a denial: an alias of a bucket is recorded as it was sent.
        return self._naming.of(request.path_params[0], *request.path_params[1].split("/"))

    def plan_list(
        self, request: RoutedRequest, _sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        """Cuts the keys that the agent may not read from a list."""
        bucket = request.path_params[0]

        def visible(name: str) -> bool:
            return visibility.permits(self._naming.of(bucket, *name.split("/")))

        return ForwardPlan(filter_response=lambda response: filter_keys(response.body, visible))

    async def list_buckets(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        """The buckets that the agent may see."""
        check_fields(request.fields)
        response = await request.fetch(request.target.forwarded)
        # An error names only buckets that the request names.
        if response.status != 200:
            return response
        body = filter_buckets(response.body, lambda name: permits(self._naming.of(name, "")))
        return response._replace(body=body, fields=without_whole_body_fields(response.fields))

    def _source_of(self, bucket: str, key: str) -> SourceRef:
        return self._naming.of(expect_bucket(bucket), *key.split("/"))
