"""How much longer another tenant's object takes to refuse than one that is not there:
`python -m tests.benchmarks.refusals`.

Requests for either go turn about over one connection, so that whatever slows the machine slows
both; what counts is the median of the differences, pair by pair, as a share of the median request.
One database round trip more is a third and over. That both send the same statements is a test,
`tests/control_api/edge/test_refusals.py`.
"""

import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path

from control_api.edge.route import Route
from tests.control_api.edge.test_walk import OWNED, ids, object_for
from tests.control_api.edge.world import Tenant, absent_like, body_of, path_of
from tests.support.control_api import running_control_api

PAIRS = 400
WARM = 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_control_api(Path(folder)) as api:
        ours, theirs = Tenant.made(api, "ours"), Tenant.made(api, "theirs")
        for route in OWNED:
            foreign = object_for(route, theirs)
            print(f"{ids(route):<60} {share(ours, route, foreign, absent_like(foreign)):+.1%}")


def share(tenant: Tenant, route: Route, foreign: str, absent: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", tenant.api.port, timeout=30)
    pairs = []
    try:
        for number in range(WARM + PAIRS):
            # Every other time the second goes first.
            order = (foreign, absent) if number % 2 else (absent, foreign)
            taken = {each: _seconds(connection, tenant, route, each) for each in order}
            pairs.append((taken[foreign], taken[absent]))
    finally:
        connection.close()
    counted = pairs[WARM:]
    difference = statistics.median(one - other for one, other in counted)
    return difference / statistics.median(other for _, other in counted)


def _seconds(
    connection: http.client.HTTPConnection, tenant: Tenant, route: Route, object_id: str
) -> float:
    body = body_of(route, object_id)
    sent = None if body is None else json.dumps(body)
    headers = {"X-API-Key": tenant.keys["admin"], "Content-Type": "application/json"}
    started = time.perf_counter()
    connection.request(route.method, path_of(route, object_id), sent, headers)
    answer = connection.getresponse()
    answer.read()
    taken = time.perf_counter() - started
    assert answer.status == 404
    return taken


if __name__ == "__main__":
    main()
