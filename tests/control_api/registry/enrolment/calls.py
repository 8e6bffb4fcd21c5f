"""Enrolling over a real connection, and reading what the log says of it."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.support.clusters import ISSUER, pod_token
from tests.support.control_api import Answer, ControlApi

PATH = "/v1/sidecars/enrol"
POLICY_SET = "/v1/sidecars/policy-set?since=0"
WORKLOAD = f"{ISSUER}:system:serviceaccount:lending:loans"


def enrol(api: ControlApi, text: str | None = None) -> Answer:
    """The answer to a token, by default a good one of pod `loans-0`."""
    return api.call("POST", PATH, {"token": pod_token() if text is None else text}, key=None)


def enrolled(api: ControlApi, text: str | None = None) -> Any:
    """The body of an enrolment that must succeed."""
    answer = enrol(api, text)
    assert answer.status == 200, answer.raw
    return answer.body


def register(api: ControlApi, **fields: Any) -> str:
    """The approved agent of the pods that `pod_token` makes tokens for."""
    return api.approved("agt_loans", workload=WORKLOAD, **fields)


def register_account(api: ControlApi, account: str) -> str:
    """The approved agent of the pods of another service account: `agt_<account>`."""
    return api.approved(f"agt_{account}", workload=workload(account))


def workload(account: str) -> str:
    """As `WORKLOAD`, of another service account."""
    return f"{ISSUER}:system:serviceaccount:lending:{account}"


def changes(api: ControlApi, what: str, tenant: str = "default") -> list[dict[str, Any]]:
    """The changes of this kind in the log of a SQLite store, newest first."""
    query = "SELECT entry FROM log_entries WHERE tenant_id = ? ORDER BY seq DESC"
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        rows = database.execute(query, (tenant,)).fetchall()
    entries = [json.loads(row[0])["pub"] for row in rows]
    return [each for each in entries if each.get("what") == what]
