"""Check 9: the policy allows the source and does not deny it (`CONTRACT.md`, The ten checks). An
empty `allowed_sources` allows nothing."""

from policies.checks.finding import PASSED, CheckFinding, failed
from policies.retrieval import Retrieval
from policies.sets.role import Clause


def source(retrieval: Retrieval, clause: Clause) -> CheckFinding:
    name = retrieval.source_id
    # A denied source stays denied even where `allowed_sources` matches it too.
    if clause.denies(name):
        return failed(
            clause.name, f"source `{name}` is in `denied_sources` of policy `{clause.name}`"
        )
    if not clause.allows(name):
        return failed(
            clause.name, f"source `{name}` is not in `allowed_sources` of policy `{clause.name}`"
        )
    return PASSED
