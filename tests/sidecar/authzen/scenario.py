"""The certification scenario of the AuthZEN Authorization API 1.0, as a table of our own.

Source: OpenID AuthZEN working group, `certification/authorization-api-1_0-scenario.md` in the
repository `openid/authzen`, as of August 2026. A case's first value is the section in which it
stands there. Knows no server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Body = dict[str, Any]

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SUBJECT = "/access/v1/search/subject"
RESOURCE = "/access/v1/search/resource"
ACTION = "/access/v1/search/action"

CONTEXT = {"context": {"time": "2025-06-27T18:03-07:00", "ip": "192.168.1.1"}}
ACTIVE, ARCHIVED = {"status": "active"}, {"status": "archived"}
ADMIN = {"role": "admin"}


def subject(name: str | None = None, properties: Body | None = None) -> Body:
    return {"subject": _entity("user", name, properties)}


def resource(name: str | None = None, properties: Body | None = None) -> Body:
    return {"resource": _entity("record", name, properties)}


def action(name: str, properties: Body | None = None) -> Body:
    return {"action": {"name": name} | ({} if properties is None else {"properties": properties})}


def _entity(kind: str, name: str | None, properties: Body | None) -> Body:
    given = {"type": kind, "id": name, "properties": properties}
    return {member: value for member, value in given.items() if value is not None}


ALICE, BOB, USERS = subject("alice"), subject("bob"), subject()
ONE, TWO, RECORDS = resource("record-1"), resource("record-2"), resource()
READ, WRITE = action("read"), action("write")
ARCHIVED_TWO = resource("record-2", ARCHIVED)
BOB_AS_ADMIN = subject("bob", ADMIN)


class Decided(NamedTuple):
    """A single evaluation, and its decision."""

    section: str
    body: Body
    decision: bool


# Basic: "2.2", Core and Properties, with the decision rules of "1.4" that are not sent there.
DECIDED = (
    Decided("2.2.1 (rule 1)", ALICE | READ | ONE, decision=True),
    Decided("1.4 (rule 2)", ALICE | WRITE | ONE, decision=True),
    Decided("1.4 (rule 3)", BOB | READ | ONE, decision=True),
    Decided("2.2.2 (rule 4)", BOB | WRITE | ONE, decision=False),
    Decided("2.2.3", ALICE | READ | ONE | CONTEXT, decision=True),
    Decided("2.2.4 (rule 5)", ALICE | WRITE | ARCHIVED_TWO, decision=False),
    Decided("2.2.5 (rule 6)", BOB_AS_ADMIN | WRITE | ARCHIVED_TWO, decision=True),
    Decided("2.2.6 (rule 7)", ALICE | action("delete", {"soft": True}) | ONE, decision=True),
    Decided("2.2.7 (rule 8)", ALICE | action("delete", {"soft": False}) | ONE, decision=False),
    Decided(
        "2.2.8",
        subject("alice", {"department": "Sales", "role": "manager"})
        | action("read", {"method": "GET"})
        | resource("record-1", {"status": "active", "owner": "bob"}),
        decision=True,
    ),
    Decided(
        "2.2.9", ALICE | READ | ONE | {"foo": "bar", "futureField": {"nested": True}}, decision=True
    ),
)


class Batch(NamedTuple):
    """Evaluations, and their decisions; None where the scenario leaves one to the implementer."""

    section: str
    body: Body
    decisions: list[bool | None]


BATCHES = (
    Batch("3.2.1", ALICE | READ | {"evaluations": [ONE, TWO]}, [True, None]),
    Batch("3.2.2", BOB | ONE | {"evaluations": [READ, WRITE]}, [True, False]),
    Batch(
        "3.2.3",
        ALICE | WRITE | {"evaluations": [resource("record-1", ACTIVE), ARCHIVED_TWO]},
        [True, False],
    ),
    Batch("3.2.4", WRITE | ARCHIVED_TWO | {"evaluations": [ALICE, BOB_AS_ADMIN]}, [False, True]),
    Batch("3.2.5", {"evaluations": [ALICE | READ | ONE, BOB | WRITE | ONE]}, [True, False]),
    Batch(
        "3.2.6",
        ALICE
        | READ
        | {"context": {"time": "2025-06-27T18:03-07:00"}}
        | {"evaluations": [ONE, TWO | {"context": {"source": "batch-override"}}]},
        [True, None],
    ),
    Batch(
        "3.2.7",
        ALICE | WRITE | resource("record-1", ACTIVE) | {"evaluations": [{}, ARCHIVED_TWO]},
        [True, False],
    ),
    Batch(
        "3.4.1",
        ALICE
        | READ
        | {"options": {"evaluations_semantic": "execute_all"}, "evaluations": [ONE, {}]},
        [True, False],
    ),
)
# "3.4.2" and "3.4.3": answered as a single evaluation.
BACKWARDS_COMPATIBLE = (ALICE | READ | ONE, ALICE | READ | ONE | {"evaluations": []})


class Found(NamedTuple):
    """A search, and what its results have to include."""

    section: str
    path: str
    body: Body
    includes: list[str]


FOUND = (
    Found("4.2.1 (S1)", SUBJECT, USERS | READ | ONE, ["alice", "bob"]),
    Found("4.2.2", SUBJECT, USERS | READ | ONE | CONTEXT, ["alice", "bob"]),
    Found("4.2.3", SUBJECT, ALICE | READ | ONE, ["alice", "bob"]),
    Found("4.2.4 (S4)", SUBJECT, USERS | WRITE | ARCHIVED_TWO, ["bob"]),
    Found("4.3.1 (S2)", RESOURCE, ALICE | READ | RECORDS, ["record-1"]),
    Found("4.3.2", RESOURCE, ALICE | READ | RECORDS | CONTEXT, ["record-1"]),
    Found("4.3.3", RESOURCE, ALICE | READ | ONE, ["record-1"]),
    Found("4.3.4 (S5)", RESOURCE, BOB_AS_ADMIN | WRITE | RECORDS, ["record-2"]),
    Found("4.4.1 (S3)", ACTION, ALICE | ONE, ["read", "write"]),
    Found("4.4.2", ACTION, ALICE | ONE | CONTEXT, ["read", "write"]),
    Found("4.4.3 (S6)", ACTION, BOB_AS_ADMIN | ARCHIVED_TWO, ["write"]),
)
SAME = (("4.2.1 (S1)", "4.2.2", "4.2.3"), ("4.3.1 (S2)", "4.3.2", "4.3.3"), ("4.4.1 (S3)", "4.4.2"))
"""Sections whose results have to be the same."""

# "4.6", at each of the three endpoints.
EMPTY = (
    (ACTION, subject("nonexistent-user") | ONE),
    (RESOURCE, subject("nonexistent-user") | READ | RECORDS),
    (SUBJECT, USERS | READ | resource("nonexistent-record")),
    (SUBJECT, {"subject": {"type": "spaceship"}} | READ | ONE),
    (RESOURCE, ALICE | READ | {"resource": {"type": "spaceship"}}),
    (ACTION, ALICE | {"resource": {"type": "spaceship", "id": "one"}}),
)

# "2.4.1", "2.4.2" and "2.4.6", then "4.7.1" and "4.7.2": answered with status 400.
REFUSED = (
    (EVALUATION, READ | ONE),
    (EVALUATION, ALICE | ONE),
    (EVALUATION, ALICE | READ),
    (EVALUATION, {"subject": {"id": "alice"}} | READ | ONE),
    (EVALUATION, USERS | READ | ONE),
    (EVALUATION, ALICE | {"action": {}} | ONE),
    (EVALUATION, ALICE | READ | {"resource": {"id": "record-1"}}),
    (EVALUATION, ALICE | READ | RECORDS),
    (EVALUATION, {"subject": "alice"} | READ | ONE),
    (EVALUATION, ALICE | {"action": {"name": 123}} | ONE),
    (SUBJECT, USERS | ONE),
    (RESOURCE, READ | RECORDS),
    (ACTION, ALICE),
    (SUBJECT, USERS | READ | RECORDS),
    (RESOURCE, USERS | READ | RECORDS),
    (ACTION, USERS | ONE),
)

# "2.4.3" to "2.4.5": the content type and the body of an evaluation, answered with status 400.
UNREADABLE = (
    ("text/plain", b'{"subject": {"type": "user", "id": "alice"}}'),
    ("application/json", b'{"subject": '),
    ("application/json", b""),
)
