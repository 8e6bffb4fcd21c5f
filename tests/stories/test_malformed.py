"""Requests that can't be served leave nothing behind, in the log or in memory."""

import gc
import http.client

import pytest

from tests.support.stack import Stack

FLOOD = 4000
GROWTH = 6 * 2**20


@pytest.mark.deep(
    stands_in="tests/sidecar/api/test_dispatch.py::test_refused_bodies_leave_no_memory_and_no_record"
)
@pytest.mark.parametrize("service", ["sidecar", "control"])
def test_a_flood_of_malformed_requests_leaves_no_entry_and_no_memory(
    stack: Stack, service: str
) -> None:
    served = getattr(stack, service)
    before = stack.verify()["events"]

    def flood(count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        for number in range(count):
            body, status = BAD[number % len(BAD)]
            headers = {"X-API-Key": stack.agent_key, "Content-Type": "application/json"}
            # Every name is new: what remembered them would grow.
            sent = body.replace(b"NEW", b"%d" % number)
            connection.request("POST", "/v1/context/evaluate", sent, headers)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == status, (body, said)
            assert b'"code"' in said
        connection.close()

    flood(FLOOD // 2)
    gc.collect()
    resident = served.resident()
    flood(FLOOD)
    assert served.resident() - resident < GROWTH
    # Decisions alone: the sidecar may tell meanwhile that it applies a revision.
    assert stack.verify()["events"] == before


BAD = [
    (b"{", 400),
    (b"[]", 400),
    (b'{"agent_role": NaN}', 400),
    (b'{"agent_role": "\\ud800 NEW"}', 400),
    (b'"NEW"', 400),
    (b"{}", 422),
    (b'{"agent_role": "NEW", "user_id": 1, "source_id": "", "sensitivity_level": "top"}', 422),
    (b'{"agent_role": "\\u0000NEW", "user_id": "u", "source_id": "s"}', 422),
]
