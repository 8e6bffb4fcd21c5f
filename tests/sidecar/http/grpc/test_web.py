"""The bodies of gRPC-Web: base64 of its text form, and the trailers in the last frame."""

import gzip
from base64 import b64encode

import pytest

from policies.ground.errors import Malformed
from sidecar.http.grpc.framing import frame
from sidecar.http.grpc.web import (
    WebResponse,
    decode_body,
    encode_body,
    read_response,
    trailers_frame,
    web_form,
)

BINARY, TEXT = b"application/grpc-web", b"application/grpc-web-text"
LIMIT = 4096
OK = b"grpc-status: 0\r\n"


def test_the_forms_are_told_by_the_content_type() -> None:
    assert web_form(b"application/grpc-web") == web_form(b"application/grpc-web+proto") == BINARY
    assert web_form(b"application/grpc-web-text+proto") == TEXT
    for other in (b"application/grpc", b"application/grpc-web+json", b"application/grpc-web-x"):
        assert web_form(other) is None


def test_a_text_is_read_in_one_piece_or_in_several() -> None:
    for parts in ([], [b""], [b"a"], [b"a", b"bc", b"", b"def"], [bytes(range(256)), b"\xff"]):
        whole = b"".join(parts)
        assert decode_body(encode_body(whole, TEXT), TEXT) == whole
        assert decode_body(b"".join(map(b64encode, parts)), TEXT) == whole
        assert decode_body(whole, BINARY) == encode_body(whole, BINARY) == whole


@pytest.mark.parametrize(
    "text", [b"AAA", b"AA=", b"AA==A", b"A===", b"AAA\n", b"AAAA====", b"AB==", b"AA-_", b"AA A"]
)
def test_a_text_that_is_not_base64_in_its_one_form_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode_body(text, TEXT)


def test_a_response_has_one_message_and_then_its_trailers() -> None:
    fields = OK + b"grpc-message: a: b\r\n"
    assert read_response(frame(b"m") + trailers_frame(fields), b"", LIMIT) == (b"m", fields)
    assert read_response(trailers_frame(fields), b"", LIMIT) == WebResponse(None, fields)
    odd = b"Grpc-Status:0 \r\n"
    assert read_response(b"\x80\0\0\0\x10" + odd, b"", LIMIT).trailers == OK
    packed = gzip.compress(b"m")
    compressed = b"\1" + len(packed).to_bytes(4, "big") + packed
    assert read_response(compressed + trailers_frame(OK), b"gzip", LIMIT).message == b"m"


@pytest.mark.parametrize(
    "frames",
    [
        b"",
        frame(b"m"),
        frame(b"m") + trailers_frame(OK)[:-1],
        frame(b"m") + trailers_frame(OK) + b"\0",
        frame(b"m") + frame(b"m") + trailers_frame(OK),
        trailers_frame(OK) + trailers_frame(OK),
        trailers_frame(OK) + frame(b"m"),
        b"\x81" + trailers_frame(OK)[1:],
        b"\x80\0\0\0\x0egrpc-status: 0",
        b"\x80\0\0\0\x05: 0\r\n",
        trailers_frame(b"grpc-status: 0\n1\r\n"),
    ],
)
def test_a_response_of_another_form_is_refused(frames: bytes) -> None:
    with pytest.raises(Malformed):
        read_response(frames, b"", LIMIT)
