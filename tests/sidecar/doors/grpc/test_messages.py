"""Messages, read and written beside Google's own library (`envoy_messages.py`)."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.doors.grpc import check_messages
from sidecar.doors.grpc.check_messages import REMOVED, allowed, denied, dynamic_metadata, parse
from sidecar.http.grpc import wire
from tests.sidecar.doors.grpc.envoy_messages import message

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True).filter(lambda name: name != "host")


def http(**members: Any) -> Any:
    """A CheckRequest about a request with these members."""
    request = message("CheckRequest")()
    about = request.attributes.request.http
    about.method, about.path = "GET", "/a"
    headers = members.pop("headers", {})
    for name, value in members.items():
        setattr(about, name, value)
    about.headers.update(headers)
    return request


def encoded(request: Any) -> bytes:
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("size", [-1, 0, 127, 128, 2**63 - 1])
@pytest.mark.parametrize(
    "value", ["", "v", "é", "\U0001f511", "a,b", "x" * 127, "x" * 128, "ü" * 200]
)
def test_each_member_that_google_writes_is_read(value: str, size: int) -> None:
    method, path = value or "GET", f"/{value}?q={value}#{value}"
    headers = {"x-a": value, "content-type": value, "x" * 130: value}
    request = http(method=method, path=path, size=size, raw_body=value.encode(), headers=headers)
    request.attributes.context_extensions.update({"a": value, "": "b", value: "c"})
    check = parse(encoded(request))
    assert (check.method, check.target, check.size) == (method, path, size)
    assert check.body == (value.encode() or None)
    assert dict(check.fields) == {k.encode(): v.encode() for k, v in headers.items()}
    assert check.extensions == {"a": value, "": "b", value: "c"}


@pytest.mark.deep(stands_in="test_each_member_that_google_writes_is_read")
@given(
    method=TEXT.filter(bool),
    path=TEXT,
    size=st.integers(-1, 2**63 - 1),
    body=st.binary(max_size=300),
    headers=st.dictionaries(NAME, TEXT, max_size=20),
    extensions=st.dictionaries(TEXT, TEXT, max_size=3),
)
def test_messages_encoded_by_google_are_read(
    method: str,
    path: str,
    size: int,
    body: bytes,
    headers: dict[str, str],
    extensions: dict[str, str],
) -> None:
    request = http(method=method, path=path, size=size, raw_body=body, headers=headers)
    request.attributes.context_extensions.update(extensions)
    check = parse(encoded(request))
    assert (check.method, check.target, check.size) == (method, path, size)
    assert check.body == (body or None)
    assert dict(check.fields) == {k.encode(): v.encode() for k, v in headers.items()}
    assert check.extensions == extensions


def test_a_raw_header_that_is_repeated_stays_so_in_its_place() -> None:
    request = http()
    fields = [(b"x-b", b"\xff"), (b"x-a", b"1"), (b"x-b", b"\xff"), (b"x-b", b""), (b"x-a", b"2")]
    for name, value in fields:
        request.attributes.request.http.header_map.headers.add(key=name.decode(), raw_value=value)
    request.attributes.request.http.header_map.headers.add(key="x-a", value="é")
    check = parse(encoded(request))
    assert not check.joined
    assert list(check.fields) == [*fields, (b"x-a", "é".encode())]


@pytest.mark.deep(stands_in="test_a_raw_header_that_is_repeated_stays_so_in_its_place")
@given(st.lists(st.tuples(NAME, st.binary(max_size=50), st.booleans()), max_size=20))
def test_raw_headers_keep_their_order_and_repetitions(
    fields: list[tuple[str, bytes, bool]],
) -> None:
    request = http()
    for name, value, raw in fields:
        text = value.decode("latin-1")
        named = {"raw_value": value} if raw else {"value": text}
        request.attributes.request.http.header_map.headers.add(key=name, **named)
    check = parse(encoded(request))
    assert check.joined is not bool(fields)
    assert list(check.fields) == [
        (name.encode(), value if raw else value.decode("latin-1").encode())
        for name, value, raw in fields
    ]


def test_the_host_leads_and_pseudo_headers_are_dropped() -> None:
    request = http(host="kb", headers={":path": "/b", ":authority": "x", "a": "1", "host": "kb"})
    assert parse(encoded(request)).fields == ((b"host", b"kb"), (b"a", b"1"))


@pytest.mark.parametrize(
    "request_",
    [
        http(method=""),
        http(query="a=b"),
        http(fragment="x"),
        http(host="kb", headers={"host": "other"}),
        http(headers={"Host": "kb", "host": "other"}, host="kb"),
    ],
)
def test_a_check_with_two_readings_is_malformed(request_: Any) -> None:
    with pytest.raises(Malformed):
        parse(encoded(request_))


def test_two_lists_of_headers_are_malformed() -> None:
    request = http(headers={"a": "b"})
    request.attributes.request.http.header_map.headers.add(key="a", value="b")
    with pytest.raises(Malformed, match="headers twice"):
        parse(encoded(request))


def test_a_repeated_field_is_malformed() -> None:
    once = encoded(http())
    with pytest.raises(Malformed, match="stands twice"):
        parse(once + once)
    entry = wire.bytes_field(1, b"a") + wire.bytes_field(2, b"b")
    twice = wire.bytes_field(2, b"GET") + wire.bytes_field(3, entry) * 2
    inside = wire.bytes_field(4, wire.bytes_field(2, twice))
    with pytest.raises(Malformed, match="one key twice"):
        parse(wire.bytes_field(1, inside))


def test_a_header_with_two_values_is_malformed() -> None:
    request = http()
    request.attributes.request.http.header_map.headers.add(key="a", value="b", raw_value=b"c")
    with pytest.raises(Malformed, match="two values"):
        parse(encoded(request))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    for message_ in (
        data,
        wire.bytes_field(1, wire.bytes_field(4, wire.bytes_field(2, data))),
    ):
        with suppress(Malformed):
            parse(message_)


@given(st.data())
def test_a_message_cut_off_or_changed_is_read_or_malformed(data: st.DataObject) -> None:
    whole = bytearray(encoded(http(host="kb", raw_body=b"{}", headers={"a": "b"})))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        parse(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_unlisted_fields_are_skipped_unread() -> None:
    known = wire.bytes_field(2, b"GET") + wire.bytes_field(4, b"/a")
    unread = (
        wire.bytes_field(99, b"\xff" * 40)
        + wire.varint_field(98, 1 << 40)
        + bytes([97 << 3 & 0x7F | 1 | 0x80, 97 >> 4])
        + b"8 bytes!"
        + bytes([97 << 3 & 0x7F | 5 | 0x80, 97 >> 4])
        + b"four"
    )
    request = wire.bytes_field(2, unread + known + unread)
    check = parse(wire.bytes_field(1, wire.bytes_field(1, b"\xff") + wire.bytes_field(4, request)))
    assert (check.method, check.target) == ("GET", "/a")


def test_the_work_of_one_message_is_limited() -> None:
    with pytest.raises(Malformed, match="more than 2048 fields"):
        parse(wire.bytes_field(9, b"") * 2049)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80", b"\x0a", b"\x0a\x05ab", b"\x0a\x80", b"\x00\x01", b"\x0b", b"\x08\x01",
        b"\x09abc", b"\x0dabc", b"\x48" + b"\xff" * 10, b"\x48" + b"\xff" * 9 + b"\x7f",
    ],
)  # fmt: skip
def test_bytes_that_are_not_a_message_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        check_messages.read(data, {1: wire.BYTES})


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**28))
def test_a_number_is_unchanged_by_writing_and_reading(value: int, number: int) -> None:
    field = wire.varint_field(number, value)
    assert check_messages.read(field, {number: wire.VARINT}) == {number: [value]}


@given(TEXT, TEXT, st.booleans())
def test_google_reads_an_allowed_answer(event_id: str, policy_name: str, reported: bool) -> None:
    metadata = dynamic_metadata(event_id, "ALLOW", policy_name, "none")
    read = message("CheckResponse").FromString(allowed(event_id, metadata, reported=reported))
    assert read.status.code == 0
    assert read.HasField("ok_response")
    assert not read.HasField("denied_response")
    options = list(read.ok_response.headers)
    assert {option.append_action for option in options} <= {2}
    assert list(read.ok_response.response_headers_to_add) == options
    named = [(option.header.key, option.header.value) for option in options]
    expected = [("x-sluice-event-id", event_id)] if event_id else []
    expected += [("x-sluice-decision", "DENY")] if event_id and reported else []
    assert named == expected
    removed = [name.decode() for name in REMOVED] + ([] if event_id else ["x-sluice-event-id"])
    assert list(read.ok_response.headers_to_remove) == removed
    found = {key: value.string_value for key, value in read.dynamic_metadata.fields.items()}
    assert found == {
        "event_id": event_id,
        "decision": "ALLOW",
        "policy_name": policy_name,
        "check": "none",
    }


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_an_entry_is_read_in_any_order_and_length(key: bytes, value: bytes, turned: bool) -> None:
    parts = [wire.bytes_field(1, key), wire.bytes_field(2, value)]
    assert check_messages.pair(b"".join(reversed(parts) if turned else parts)) == (key, value)


@given(st.binary(max_size=12))
def test_any_entry_is_read_as_its_fields_are(entry: bytes) -> None:
    try:
        fields = check_messages.read(entry, {1: wire.BYTES, 2: wire.BYTES})
        expected = check_messages.data(fields, 1), check_messages.data(fields, 2)
    except Malformed:
        with pytest.raises(Malformed):
            check_messages.pair(entry)
    else:
        assert check_messages.pair(entry) == expected


def test_google_reads_a_denied_answer() -> None:
    answer = denied(16, 401, [(b"content-type", b"application/json")], b"{}" * 200)
    read = message("CheckResponse").FromString(answer)
    assert (read.status.code, read.denied_response.status.code) == (16, 401)
    assert read.denied_response.body == "{}" * 200
    assert [each.header.key for each in read.denied_response.headers] == ["content-type"]
    assert not read.HasField("ok_response")
    assert not read.HasField("dynamic_metadata")
