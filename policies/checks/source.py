"""Check 9: the source is not denied, and is allowed (`service.md` 2.1). An empty `allowed_sources`
allows nothing."""

from policies.checks.finding import PASSED, CheckFinding, failed
from policies.retrieval import Retrieval
from policies.sets.role import Clause


def source(retrieval: Retrieval, clause: Clause) -> CheckFinding:
    name = retrieval.source_id
    if clause.denies(name):
        return failed(
            clause.name, f"source `{name}` is in `denied_sources` of policy `{clause.name}`"
        )
    if not clause.allows(name):
        return failed(
            clause.name, f"source `{name}` is not in `allowed_sources` of policy `{clause.name}`"
        )
    return PASSED
