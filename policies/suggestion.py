"""Suggests how a policy should name a source whose whole id it does not know.

    suggest(retrieval, decision, facts.role)     for a denied call, in words; None without one

A policy says `handbook`, and a sidecar asks for `chroma://db/handbook`. For those who write
policies and read the log: an agent is never told what policies name. Pure; changes no decision.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from policies.definitions.wildcard import matcher
from policies.evaluate import Decision
from policies.retrieval import Retrieval
from policies.sets.role import Clause, Role

MAX_OTHERS = 1000
"""The most policies of other roles that are looked through."""


def suggest(
    retrieval: Retrieval, decision: Decision, role: Role | None, others: Iterable[Clause] = ()
) -> str | None:
    """Suggest how to name the source, by a policy that names only the end of its id. `others` are
    policies of other roles, for a call whose role has none."""
    if decision.check == "source" and role is not None and not role.denies(retrieval.source_id):
        return named_by(retrieval.source_id, role.clauses)
    if decision.check == "policy_exists":
        return named_by(retrieval.source_id, tuple(islice(others, MAX_OTHERS)))
    return None


def named_by(source_id: str, clauses: tuple[Clause, ...]) -> str | None:
    """Suggest how to name the source, by the one of these policies that names only the end of its
    id."""
    # The longest end first: it says the most.
    for end in _ends(source_id):
        for clause in clauses:
            if clause.allows(end) and not clause.allows(source_id):
                entry = next(each for each in clause.allowed_sources if matcher((each,))(end))
                whole = source_id.removesuffix(end) + entry
                return (
                    f"policy `{clause.name}` names `{entry}`, and this source's whole id is "
                    f"`{source_id}`: write `{whole}` in `allowed_sources`"
                )
    return None


def _ends(source_id: str) -> Iterator[str]:
    """Return the text that follows each `/` of `source_id`, the longest first: for
    `chroma://db/handbook`, `db/handbook` and `handbook`."""
    rest = source_id.partition("://")[2] or source_id.partition("/")[2]
    while rest:
        yield rest
        rest = rest.partition("/")[2]
