"""Every operation of S3, as botocore knows it, has a row, and the closed ones are closed."""

from typing import Any

import botocore.session
import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass
from sidecar.protocols.s3.routes import OPERATIONS, S3
from tests.sidecar.protocols.s3.front import S3Front, denied
from tests.support.proxy import CLOCK, source


def test_every_operation_of_s3_has_a_route() -> None:
    model = botocore.session.get_session().get_service_model("s3")
    classes: dict[str, RouteClass] = {}
    protocol = S3(source(1, "s3"), CLOCK.monotonic)
    for name in model.operation_names:
        operation = model.operation_model(name)
        path, _, marks = operation.http["requestUri"].partition("?")
        path = path.replace("{Bucket}", "bucket").replace("{Key+}", "a/key")
        members = operation.input_shape.members if operation.input_shape else {}
        needed = operation.input_shape.required_members if operation.input_shape else []
        for every in (True, False):
            stated = [
                f"{shape.serialization['name']}=1"
                for member, shape in members.items()
                if shape.serialization.get("location") == "querystring"
                and (every or member in needed)
            ]
            query = "&".join([*(marks.split("&") if marks else []), *stated])
            found = protocol.match(operation.http["method"], canonical(f"{path}?{query}"))
            assert found is not None, (name, query)
            classes[name] = found.route.route_class
    opened = {name for name, class_ in classes.items() if class_ not in ALWAYS_DENIED}
    assert opened == {
        "GetObject", "HeadObject", "GetObjectTorrent", "GetObjectAttributes", "GetObjectTagging",
        "GetObjectLegalHold", "GetObjectRetention", "GetObjectAnnotation", "SelectObjectContent",
        "ListObjectAnnotations", "ListParts", "ListObjects", "ListObjectsV2", "ListObjectVersions",
        "ListMultipartUploads", "ListBuckets", "ListDirectoryBuckets", "HeadBucket",
        "GetBucketLocation", "GetBucketVersioning", "GetObjectLockConfiguration", "PutObject",
        "CopyObject", "UploadPart", "UploadPartCopy", "CreateMultipartUpload",
        "CompleteMultipartUpload", "AbortMultipartUpload", "DeleteObject", "DeleteObjects",
    }  # fmt: skip


@pytest.mark.parametrize(
    "each", [row for row in OPERATIONS if row.route.route_class in ALWAYS_DENIED]
)
async def test_a_closed_route_is_closed(writing: S3Front, each: Any) -> None:
    path = {"service": "/", "bucket": "/{b}", "object": "/{b}/open/a.txt"}[each.resource]
    target = path.format(b=writing.bucket) + "?" + "&".join(sorted(each.required))
    for method in each.route.methods.split():
        answered = await writing.ask(method, target.removesuffix("?"))
        denied(answered, "route_denied")
    assert writing.upstream.seen == []
