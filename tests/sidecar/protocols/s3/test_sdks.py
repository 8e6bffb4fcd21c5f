"""What the official SDKs send with the operations that agents use, by their sources and models:
all of it passes. A header or parameter that no SDK sends stays refused.
"""

import pytest

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import ALWAYS_DENIED
from sidecar.protocols.s3.routes import S3
from sidecar.protocols.s3.sources import check_fields, grants_access, passes
from tests.sidecar.protocols.s3.front import S3Front
from tests.support.proxy import CLOCK, source

EMPTY = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

# What each SDK adds to every request. `amz-sdk-…` and `aws-sdk-…` are ordinary headers to S3.
SDKS: dict[str, dict[str, str]] = {
    "boto3": {"amz-sdk-invocation-id": "1", "amz-sdk-request": "attempt=1"},
    "cpp": {
        "x-amz-api-version": "2006-03-01",
        "amz-sdk-invocation-id": "1",
        "amz-sdk-request": "attempt=1",
    },
    "rust": {
        "x-amz-user-agent": "aws-sdk-rust/1 ua/2.1 api/s3#1 os/linux lang/rust#1",
        "amz-sdk-invocation-id": "1",
        "amz-sdk-request": "attempt=1; max=3",
    },
    "go": {"amz-sdk-invocation-id": "1", "amz-sdk-request": "attempt=1; max=3"},
    "java": {
        "amz-sdk-invocation-id": "1",
        "amz-sdk-request": "attempt=1; max=4",
        "amz-sdk-retry": "0/0/500",
        "x-amzn-trace-id": "Root=1-0;Parent=0;Sampled=1",
    },
    "net": {"amz-sdk-invocation-id": "1", "amz-sdk-request": "attempt=1; max=5"},
    "php": {
        "aws-sdk-invocation-id": "1",
        "aws-sdk-retry": "0/0",
        "x-amz-user-agent": "aws-sdk-php/3 ua/2.1",
    },
    "js": {
        "x-amz-user-agent": "aws-sdk-js/3",
        "amz-sdk-invocation-id": "1",
        "amz-sdk-request": "attempt=1; max=3",
    },
}
# Of these, the requests name the operation in `x-id`.
NAMING = ("go", "js", "net", "rust")

LISTED = (
    "/{b}?list-type=2&prefix=open%2F&delimiter=%2F&max-keys=2&encoding-type=url&"
    "fetch-owner=true&start-after=open%2F"
)
# Per operation: method, target, `x-id`, and the headers that some SDK adds by itself or by an
# option of its own.
OPERATIONS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "list": (
        "GET", LISTED, "ListObjectsV2",
        {"x-amz-expected-bucket-owner": "123456789012", "x-amz-request-payer": "requester",
         "x-amz-optional-object-attributes": "RestoreStatus"},
    ),
    "get": (
        "GET", "/{b}/open/a.txt", "GetObject",
        {"x-amz-checksum-mode": "ENABLED", "range": "bytes=0-3", "x-amz-te": "append-md5",
         "x-amz-expected-bucket-owner": "123456789012", "x-amz-request-payer": "requester"},
    ),
    "head": (
        "HEAD", "/{b}/open/a.txt", "HeadObject",
        {"x-amz-checksum-mode": "ENABLED", "x-amz-request-payer": "requester"},
    ),
    "put": (
        "PUT", "/{b}/new/put", "PutObject",
        {"x-amz-sdk-checksum-algorithm": "CRC32", "x-amz-checksum-crc32": "AAAAAA==",
         "x-amz-acl": "bucket-owner-full-control", "x-amz-storage-class": "STANDARD",
         "x-amz-meta-a": "b", "x-amz-server-side-encryption": "AES256"},
    ),
    "stream": (
        "PUT", "/{b}/new/stream", "PutObject",
        {"x-amz-sdk-checksum-algorithm": "CRC64NVME", "x-amz-trailer": "x-amz-checksum-crc64nvme",
         "x-amz-decoded-content-length": "0", "content-encoding": "aws-chunked",
         "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
    ),
    "copy": (
        "PUT", "/{b}/new/copy", "CopyObject",
        {"x-amz-copy-source": "{b}/open/a.txt", "x-amz-metadata-directive": "COPY",
         "x-amz-copy-source-if-match": '"e"', "x-amz-checksum-algorithm": "SHA256",
         "x-amz-source-expected-bucket-owner": "123456789012"},
    ),
    "delete": (
        "DELETE", "/{b}/new/put", "DeleteObject",
        {"x-amz-if-match-size": "0", "x-amz-request-payer": "requester"},
    ),
    "create-upload": (
        "POST", "/{b}/new/large?uploads", "CreateMultipartUpload",
        {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"},
    ),
    "upload-part": (
        "PUT", "/{b}/new/large?partNumber=1&uploadId=u", "UploadPart",
        {"x-amz-checksum-sha256": EMPTY, "x-amz-sdk-checksum-algorithm": "SHA256"},
    ),
    "complete-upload": (
        "POST", "/{b}/new/large?uploadId=u", "CompleteMultipartUpload",
        {"x-amz-mp-object-size": "0", "x-amz-checksum-crc32": "AAAAAA==",
         "x-amz-checksum-type": "FULL_OBJECT"},
    ),
    "abort-upload": (
        "DELETE", "/{b}/new/large?uploadId=u", "AbortMultipartUpload",
        {"x-amz-if-match-initiated-time": "Wed, 21 Oct 2015 07:28:00 GMT"},
    ),
}  # fmt: skip

NOT_SIGNED_ANEW = ("x-amz-content-sha256",)


@pytest.mark.parametrize("sdk", SDKS)
def test_each_sdk_s_requests_have_a_route_and_keep_their_headers(sdk: str) -> None:
    protocol = S3(source(1, "s3"), CLOCK.monotonic)
    for method, target, name, fields in OPERATIONS.values():
        named = ("&" if "?" in target else "?") + f"x-id={name}" if sdk in NAMING else ""
        found = protocol.match(method, canonical(target.format(b="lake") + named))
        assert found is not None
        assert found.route.route_class not in ALWAYS_DENIED
        sent = {**SDKS[sdk], **fields}
        raw = [(each.encode(), value.format(b="lake").encode()) for each, value in sent.items()]
        check_fields(raw, writes=method != "GET")
        assert not any(grants_access(*field) for field in raw)
        assert all(passes(each) for each, _ in raw if each.startswith(b"x-amz"))


async def test_requests_of_the_sdk_for_cpp_arrive_with_their_headers(writing: S3Front) -> None:
    for operation, (method, form, _, fields) in OPERATIONS.items():
        target = form.format(b=writing.bucket)
        sent = {**SDKS["cpp"], **fields}
        lines = [f"{name}: {value.format(b=writing.bucket)}" for name, value in sent.items()]
        answered = await writing.ask(method, target, *lines)
        assert "x-sluice-decision" not in answered.fields, (operation, answered.raw[:600])
        [arrived] = writing.upstream.seen
        assert arrived.line == f"{method} {target} HTTP/1.1"
        for each, value in sent.items():
            if each not in NOT_SIGNED_ANEW:
                assert arrived.values(each) == [value.format(b=writing.bucket)], (operation, each)
        writing.upstream.seen.clear()


@pytest.mark.parametrize(
    "field",
    [
        (b"x-amz-api-version", b"2030-01-01"),
        (b"x-amz-te", b"other"),
        (b"x-amz-client-token", b"t"),
        (b"x-amz-object-annotation-directive", b"COPY"),
        (b"x-amz-fwd-status", b"200"),
        (b"x-amz-request-route", b"r"),
        (b"x-amz-copy-source", b"lake/shut/s.txt"),
        (b"X-Amz-Unheard-Of", b"1"),
    ],
)
def test_a_header_that_could_change_the_operation_is_refused(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(Malformed, match=field[0].decode().lower()):
        check_fields([field])
