"""An export has the documents that its decisions cite, and no others."""

from __future__ import annotations

import hashlib

import orjson

from policies.ground.canonical import b64, encode
from policies.trail.commitment import commitment, field_salt
from policies.trail.log_file.lines import EntryLine, PolicyLine
from policies.trail.record import Record, make_record
from tests.control_api.audit.test_export_log import alter, exported, sqlite_url
from tests.control_api.audit.test_judged_records import Sidecar, agent, new_id
from tests.support.control_api import ControlApi

__all__ = ["sqlite_url"]  # a fixture


def test_a_document_that_only_a_decoy_cites_is_not_exported(
    fresh: ControlApi,
) -> None:
    api = fresh
    agent_id = agent(api, "decoys")
    api.evaluate(agent_id=agent_id)
    policy = {"allowed_sources": ["x"], "denied_sources": [], "max_sensitivity": "low"}
    api.admin("POST", "/v1/policies", {"name": "other", "agent_role": "auditor", **policy})
    (true,) = (
        orjson.loads(line.entry)["pub"]
        for line in exported(api)
        if isinstance(line, EntryLine) and b'"kind":"decision"' in line.entry
    )
    kept = alter(api, "SELECT digest, name FROM cited_documents")
    other = next(row.digest for row in kept if row.name == "role/auditor")
    role = true["facts"]["role"]
    assert other != role
    sidecar = Sidecar(api, agent_id)
    # The first `role` is not that of the facts, nor is any `sources`.
    decoy = {"a": {"a": 1, "role": other, "sources": other}}
    beat = {"revision": 1, "facts": {"a": 1, "role": other}}
    shipped = [heartbeat(beat), decided({**decoy, **true})]
    assert sidecar.sent([sidecar.put(each) for each in shipped]) == []
    for first in (0, api.verified()["total"] - 2):
        lines = exported(api, f"?from={first}")
        bodies = [line.document for line in lines if isinstance(line, PolicyLine)]
        assert [hashlib.sha256(body).hexdigest() for body in bodies] == [role], first


def heartbeat(pub: dict[str, object]) -> Record:
    return make_record("heartbeat", new_id(), encode(pub))


def decided(pub: dict[str, object]) -> Record:
    path, value = "user_id", "ann"
    salt = field_salt(b"s" * 32, path)
    cm = {path: b64(commitment(salt, path, encode(value)))}
    return make_record(
        "decision", new_id(), encode(pub), encode(cm), encode({path: [b64(salt), value]})
    )
