"""What is remembered with a head is what reading it anew would give, for each source that it may be
led to."""

from typing import Any

from sidecar.http.attribution import Attribution
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.http.server.head_cache import HeadTemplate, head_template
from sidecar.http.server.request import HttpRequest
from sidecar.protocols.protocol import FetchedResponse, RoutedRequest
from sidecar.protocols.registry import load_protocol
from sidecar.proxy.limits import LIMITS
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.request_context import RequestContext
from tests.support.proxy import source


async def no_look_up(_head: RequestHead, _target: str, _body: bytes | None) -> FetchedResponse:
    raise AssertionError("nothing is looked up here")


def classifier(user: str, **changes: Any) -> RequestClassifier:
    rules = SourceRules(Attribution(user, None, None, None), False, None)
    protocol = load_protocol(source(1, **changes), lambda: 0.0)
    return RequestClassifier(protocol, rules, no_look_up, LIMITS)


class Remembered:
    """Requests with one remembered head, as a connection makes them."""

    def __init__(self, target: str, *lines: bytes) -> None:
        raw = [f"GET {target} HTTP/1.1".encode(), b"Host: kb", *lines]
        self.raw_head = b"\r\n".join(raw) + b"\r\n\r\n"
        self.target = target
        fields = [(name, value) for name, _, value in (line.partition(b": ") for line in raw[1:])]
        template = head_template(fields, sort_request_fields(fields), self.raw_head)
        assert template is not None
        self.template: HeadTemplate = template

    def led_to(self, asked: RequestClassifier, target: str = "") -> RoutedRequest:
        connection: Any = None
        request = HttpRequest(connection)
        request.method, request.target = "GET", target or self.target
        request.known, request.head, request.raw_head = True, self.template, self.raw_head
        return asked.classify(request, RequestContext(0.0, None, request.watch_client))[1]


def test_a_head_is_read_once_for_one_source() -> None:
    head = Remembered("/a", b"X-Sluice-Task: review", b"Accept: x")
    asked = classifier("ada")
    first, second = head.led_to(asked), head.led_to(asked)
    assert second.target is first.target
    assert second.attribution == Attribution("ada", None, "review", None)
    assert list(second.fields) == [(b"Accept", b"x")]
    assert second.budget is not first.budget


def test_a_cached_head_keeps_its_meaning_for_each_source() -> None:
    head = Remembered("/a")
    ada, bob = classifier("ada"), classifier("bob")
    for asked, user in ((ada, "ada"), (bob, "bob"), (ada, "ada")):
        assert head.led_to(asked).attribution.user == user


def test_a_cached_head_is_parsed_again_for_another_target() -> None:
    head, asked = Remembered("/base/a"), classifier("ada")
    for target in ("/a", "/base/a", "/a"):
        assert head.led_to(asked, target).target.path == target


def test_no_query_is_kept() -> None:
    head, asked = Remembered("/a?key=secret"), classifier("ada")
    assert head.led_to(asked).target.query == "key=secret"
    assert head.template.meaning is None
