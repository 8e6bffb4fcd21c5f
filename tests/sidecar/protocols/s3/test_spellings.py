"""S3 receives only what was judged, on the wire: paths, queries, copy sources and deletions in
every spelling. The test reads what arrived with its own parser."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sidecar.settings.model import Aws
from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.aws import ACCESS, REGION, SECRET, credentials_file, fault
from tests.sidecar.protocols.shared.signing_front import SigningFront, signing_front
from tests.sidecar.proxy.raw_client import ask
from tests.support.properties import examples
from tests.support.proxy import policy
from tests.support.scripted_source import Seen, answer

PIECES = [
    "/", "//", "shut", "open", "%73hut", "sh%75t", "lake", "l%61ke", "vault", "..", ".", "%2e%2e",
    "%2f", "%2F", "%5c", "\\", "..;", ";x", "%3b", "%00", "%0d%0a", "#", "%23", "%3f", "%25",
    "%2573", "%", "S", "é", "%c3%a9", "%c0%ae", "+", "%20", "~", "-s3alias",
    "arn:aws:s3:x:1:accesspoint",
]  # fmt: skip
QUERIES = [
    "", "?", "?versionId=1", "?versionId=1&versionId=2", "?attributes", "?torrent", "?acl",
    "?select&select-type=2", "?uploadId=u", "?uploads", "?partNumber=1&uploadId=u", "?delete",
    "?list-type=2", "?list-type=2&prefix=open/", "?list-type=2&prefix=shut/", "?prefix=%73hut",
    "?prefix=open/../shut", "?prefix=open/&prefix=shut/", "?Prefix=shut/", "?versions&prefix=shut",
    "?prefix=open/+", "?x-id=GetObject", "?policy", "?session", "?location", "?tagging",
    "?X-Amz-Signature=0", "?response-content-type=a/b", "?annotation&annotationName=n", "?prefix",
]  # fmt: skip
COPIES = [
    "", "lake/open/a", "/lake/shut/s", "lake/%73hut/s", "%2Flake%2Fshut", "vault/open/a",
    "lake/open/../shut/s", "lake/open/a?versionId=1", "lake/open/a?versionId=/../../shut", "lake",
    "arn:aws:s3:x:1:accesspoint/open/object/a", "lake/open/a+b", "lake//shut",
]  # fmt: skip
BODIES = [
    b"", b"<Delete><Object><Key>open/a</Key></Object></Delete>",
    b"<Delete><Object><Key>shut/s</Key></Object></Delete>",
    b"<Delete><Object><Key>open/a</Key></Object><Object><Key>sh&#117;t/s</Key></Object></Delete>",
    b"<Delete><Object><Key>open/../shut/s</Key></Object></Delete>",
]  # fmt: skip

# Most of what is drawn is almost a request that passes: one that never could shows little.
USUAL = ["/lake/open/a", "/lake/%6fpen/b", "/lake/open/d/e", "/lake", "/lake/", "/"]
PATHS = st.one_of(
    st.sampled_from(USUAL),
    st.tuples(st.sampled_from(USUAL[:3]), st.lists(st.sampled_from(PIECES), max_size=2)).map(
        lambda drawn: drawn[0] + "".join(drawn[1])
    ),
    st.lists(st.sampled_from(PIECES), max_size=6).map(lambda parts: "/" + "".join(parts)),
    st.sampled_from(["/lake/shut/s", "/vault/open/a", "/vault"]),
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, str, bytes]:
    """The method, target, copy source and body."""
    method = draw(st.sampled_from(["GET", "GET", "HEAD", "PUT", "POST", "DELETE"]))
    rare = draw(st.integers(0, 9)) == 0
    query = draw(st.one_of(st.just(""), st.sampled_from(QUERIES)))
    copied, body = "", b""
    if rare or method == "PUT":
        copied = draw(st.one_of(st.just(""), st.sampled_from(COPIES)))
    if method == "POST":
        query = draw(st.sampled_from(["?delete", "?uploads", "?uploadId=u", query]))
    if rare or query == "?delete":
        body = draw(st.sampled_from(BODIES))
    return method, draw(PATHS) + query, copied, body


LIST = b"<ListBucketResult></ListBucketResult>"


@pytest.fixture(scope="module")
def runner_and_front() -> Iterator[tuple[asyncio.Runner, SigningFront]]:
    may = policy(
        allowed_sources=("s3://kb/lake/open*", "s3://kb/lake/"),
        denied_sources=("s3://kb/lake/shut*",),
    )

    def set_up(folder: Path) -> AbstractAsyncContextManager[SigningFront]:
        aws = Aws(region=REGION, credentials_file=credentials_file(folder))
        return signing_front(folder, aws, may, kind="s3")

    with kept_open(set_up) as (runner, front):
        front.upstream.script = answer(body=LIST)
        yield runner, front


def names(seen: Seen) -> set[str]:
    """What a request names, read as S3 reads it."""
    path, _, query = seen.target.partition("?")
    bucket, _, key = unquote(path)[1:].partition("/")
    found = {f"{bucket}/{key}"}
    if bucket:
        # Otherwise it is a list of buckets, which is filtered.
        stated = [each[7:] for each in query.split("&") if each.startswith("prefix=")]
        found |= {f"{bucket}/{unquote(each)}" for each in stated}
    for copied in seen.values("x-amz-copy-source"):
        found.add(unquote(copied.partition("?")[0]).removeprefix("/"))
    if "delete" in query.split("&"):
        keys = re.findall(r"<Key>(.*?)</Key>", seen.body.decode())
        found |= {f"{bucket}/{each}" for each in keys}
    return found


@given(requests())
@examples(400)
def test_no_request_that_arrives_names_a_forbidden_key(
    runner_and_front: tuple[asyncio.Runner, SigningFront], request_of: tuple[str, str, str, bytes]
) -> None:
    method, target, copied, body = request_of
    runner, front = runner_and_front
    front.upstream.begun.clear()
    front.upstream.seen.clear()
    lines = [f"{method} {target} HTTP/1.1", "Host: kb", "Connection: close"]
    lines += [f"x-amz-copy-source: {copied}"] if copied else []
    lines += [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    answered = runner.run(ask(front.port, head + body))
    event(str(answered.status))
    if answered.status not in (200, 502):
        assert front.upstream.begun == []
        assert answered.status in (400, 403)
        return
    for seen in front.upstream.seen:
        assert fault(seen, "s3", {ACCESS: SECRET}) is None
        for name in names(seen):
            assert name == "/" or re.match(r"lake/(?:open|\Z)", name), seen.line
            assert ".." not in name.split("/")
            assert "//" not in name
