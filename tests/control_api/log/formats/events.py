"""Audit events to export, from ordinary to unusual."""

from __future__ import annotations

from typing import Any

from policies.trail.fields import FIELDS
from policies.trail.record import REPORT_PREFIX

TENANT = "ten_acme"

ALLOWED: dict[str, Any] = {
    **{each.shown: None for each in FIELDS if each.shown},
    "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
    "seq": 17,
    "timestamp": "2026-01-31T12:00:00.123456Z",
    "time_doubtful": False,
    "agent_foreign": False,
    "decision": "ALLOW",
    "policy_name": "loan-underwriting",
    "reason": "policy `loan-underwriting` allows it",
    "check": None,
    "policy_version": 3,
    "agent_role": "loan_underwriter",
    "agent_id": "agt_loans",
    "user_id": "u-1001",
    "source_id": "contracts",
    "source_type": "envoy_http",
    "sensitivity_level": "high",
    "session_id": "ses-1",
    "task_type": "summary",
    "query": "terms of contract 4711",
    "context_hash": "9f" * 32,
    "pii_masked": False,
    "sidecar_id": "sidecar-1",
    "hash": "ab" * 32,
    "prev_hash": "cd" * 32,
}
DENIED = ALLOWED | {
    "decision": "DENY",
    "policy_name": "no_policy",
    "policy_version": None,
    "check": "role",
    "reason": "role `loan_underwriter` has no active policy",
}
SPARSE = DENIED | {
    "agent_id": None,
    "user_id": None,
    "session_id": None,
    "task_type": None,
    "query": None,
    "sidecar_id": None,
}
"""A decision of the control API, without what may be absent, and its user erased."""
UNUSUAL: dict[str, dict[str, Any]] = {
    "masked": ALLOWED | {"pii_masked": True, "user_id": "[EMAIL]", "query": "[NAME] [IBAN]"},
    "a statement's": ALLOWED
    | {
        "source_type": "postgres",
        "query": "SELECT title FROM contracts WHERE id = $1",
        "parameters": '["4711"]',
        "statement_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8e",
        "statement_look": "bind",
        "statement_fingerprint": "50fde20626009aba",
        "statement_digest": "de" * 32,
    },
    "reported": DENIED | {"reason": REPORT_PREFIX + DENIED["reason"]},
    "control characters": ALLOWED | {"reason": "one\r\ntwo\tthree\x1b[31m\x00\u2028end"},
    "formulas": ALLOWED | {"source_id": "=1+1", "user_id": " @x", "agent_role": "-2"},
    "unicode": ALLOWED | {"user_id": "Zoë 🦥", "source_id": "договоры/契約\u0301", "agent_id": "ﷺ"},
    "noncharacters": ALLOWED | {"source_id": "a\ufffeb\U0010ffffc\ufdd0"},
    "long": ALLOWED | {"source_id": "ü" * 256, "session_id": "s" * 256, "reason": "r" * 60_000},
    "before 1970": ALLOWED | {"timestamp": "1969-12-31T23:59:59.999999Z"},
    "the epoch": ALLOWED | {"timestamp": "1970-01-01T00:00:00.000000Z"},
    "the year 0001": ALLOWED | {"timestamp": "0001-01-01T00:00:00.000000Z"},
    "the year 9999": ALLOWED | {"timestamp": "9999-12-31T23:59:59.999999Z"},
    "quotes": ALLOWED | {"reason": 'a "quoted", reason; <b>&amp;</b>', "source_id": "a,b;c'd\\"},
    "large numbers": ALLOWED | {"seq": 2**53 - 1, "policy_version": 2**53 - 1},
}
EVENTS = {"allowed": ALLOWED, "denied": DENIED, "sparse": SPARSE, **UNUSUAL}
