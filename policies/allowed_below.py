"""Tells if a caller may read every source whose id begins with a given prefix. Pure. The proxy asks
before it shows a list of names below that prefix, which would otherwise reveal sources that the
caller may not read."""

from dataclasses import replace

from policies.checks.finding import Facts
from policies.definitions.wildcard import matcher, may_begin
from policies.evaluate import evaluate
from policies.retrieval import Retrieval


def allows_below(retrieval: Retrieval, facts: Facts) -> bool:
    """Return whether the policies allow every source whose id begins with the retrieval's
    `source_id`. Return False in doubt: also if the tenant states sensitivity levels of sources
    below this prefix that the policies might not allow."""
    role, start = facts.role, retrieval.source_id
    if role is None:
        return False
    if any(may_begin(entry, start) for clause in role.clauses for entry in clause.denied_sources):
        return False
    if facts.sources is not None:
        retrieval = retrieval._replace(sensitivity_level="critical", levels=None)
    # An entry with a `*` at its end that matches the beginning matches all that follows it too.
    open_ended = (
        replace(clause, allows=matcher(each for each in clause.allowed_sources if each[-1:] == "*"))
        for clause in role.clauses
    )
    reduced = replace(role, clauses=tuple(open_ended))
    return evaluate(retrieval, facts._replace(role=reduced)).decision == "ALLOW"
