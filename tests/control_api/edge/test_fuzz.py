"""A short run of `tests.fuzz`: every operation, every check, a key of each scope."""

from __future__ import annotations

from pathlib import Path

import pytest

from control_api.routes import ROUTES
from tests.fuzz import PHASES, SCOPES, one_round
from tests.runner import tiers
from tests.support.properties import few

CHECKS = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
}


@pytest.mark.parametrize("scope", SCOPES if tiers.deep() else ["admin"])
def test_every_response_is_as_described(tmp_path: Path, scope: str) -> None:
    # A wrong scope is refused before the body is read, so fewer kinds of data suffice.
    phases = tuple(each for each in PHASES if each != "coverage" or scope == "admin")
    one_in = 1 if tiers.deep() else 4
    few_each = few(4, at_least=2)
    found = one_round(tmp_path, scope, 1, examples=few_each, phases=phases, one_in=one_in)
    assert not found.faults, "\n".join(f"{where}\n{told}" for where, told in found.faults.items())
    assert found.requests > 3 * len(ROUTES) // one_in
    assert set(found.checks) >= CHECKS
