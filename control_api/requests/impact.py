"""The request to decide recorded traffic again by other policies. Knows nothing of the log."""

from typing import Any, ClassVar, NamedTuple

import orjson
from pydantic import Field

from control_api.requests.log_place import Place
from control_api.requests.policies import PolicySetAsked
from control_api.requests.policy import PolicyAsked
from policies.ground.canonical import encode
from policies.ground.json_body import parse_object


class ImpactRequest(PolicySetAsked):
    """All policies that would be in force, and the part of the log to decide again."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyAsked.example],
        "from": "2026-01-24T12:00:00Z",
    }

    first: Place | None = Field(
        None,
        alias="from",
        description="The first entry: its `seq`, or a time (RFC 3339), which means the first entry "
        "that the control API recorded at or after it. The oldest entry by default.",
    )
    until: Place | None = Field(
        None,
        alias="to",
        description="Where to stop: the `seq` or time of the first entry that is left out. The end "
        "of the log by default.",
    )


class Prepared(NamedTuple):
    """A request that was decoded and validated: its bounds, and its policies as JSON, as a run
    stores and reads them."""

    first: str | None
    until: str | None
    policies: bytes


def prepare(body: bytes, in_force: bytes) -> bytes:
    """The prepared request, for `read_prepared`. `in_force` is the JSON array of the documents of
    all roles. Raises `Malformed`, and `Invalid` with all complaints."""
    request = ImpactRequest.read(parse_object(body, None, unique=True))
    policies = [{**each, "policy_id": "", "version": 0} for each in request.bodies(in_force)]
    return b"\n".join((orjson.dumps([request.first, request.until]), encode(policies)))


def read_prepared(prepared: bytes) -> Prepared:
    """The reverse of `prepare`. The policies, which may be large, are not decoded."""
    line, _, policies = prepared.partition(b"\n")
    first, until = orjson.loads(line)
    return Prepared(first, until, policies)
