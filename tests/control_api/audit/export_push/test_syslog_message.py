"""A syslog message has one element of structured data, whatever its event's id is (RFC 5424)."""

from __future__ import annotations

import re

import pytest

from control_api.audit.export_push.syslog import framed_message

_ELEMENT = re.compile(r'\[sluice@32473((?: [a-z_]+="(?:[^"\\\]]|\\.)*")*)\] ')
_PARAMETER = re.compile(r' ([a-z_]+)="((?:[^"\\\]]|\\.)*)"')


def parameters(event_id: str) -> dict[str, str]:
    """As a receiver reads them. What follows the element is the text, to the byte."""
    event = {
        "decision": "DENY", "timestamp": "2026-01-02T03:04:05.000006Z", "event_id": event_id,
        "seq": 7, "hash": "ab+/=",
    }  # fmt: skip
    frame = framed_message(event, "ten_1", "host", lambda *_: b"{}")
    length, _, message = frame.partition(b" ")
    assert int(length) == len(message)
    head, _, rest = message.decode().partition(" - decision ")
    assert head == "<108>1 2026-01-02T03:04:05.000006Z host sluice"
    found = _ELEMENT.match(rest)
    assert found is not None, rest
    assert rest[found.end() :] == "{}"
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in _PARAMETER.findall(found[1])}


@pytest.mark.parametrize(
    "event_id",
    ["0198-plain", 'a"] [forged@1 x="1', "ends with \\", "]", '\\"', "ünïcode ☃"],
)
def test_an_id_cannot_end_the_element_that_contains_it(event_id: str) -> None:
    assert parameters(event_id) == {"event_id": event_id, "seq": "7", "hash": "ab+/="}
