"""Analyses exactly what policies allow: not for one request, but for all possible requests.

    positions.py      where a name can be in many patterns at once: an automaton over all of them
    names.py          the lists in use split all names into finitely many classes, which no policy
                      can tell apart; each has a shortest example
    intersection.py   what two patterns match together, as patterns
    regions.py        writes a set of classes as patterns and exceptions
    access.py         what one role's policies allow: agents, tasks, sources, levels
    redundancy.py     which policies and entries do nothing; explanation.py: what decides instead
    registry.py       who may act in a role: the agents that pass the identity checks
    difference.py     where two sets of policies decide differently
    matrix.py         what a role may read of each of some sources, in a cell
    overlap.py        whether entries can match the same name
    guardrails.py     the request that breaks a guardrail

The language is small enough for that (`policies/definitions/wildcard.py`, from which both the
matcher and the classes are made). Pure, and knows no file and no service.
"""
