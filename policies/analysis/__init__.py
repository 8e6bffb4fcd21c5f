"""Analyses exactly what policies allow: not for one request, but for all possible requests.

    patterns.py       which names patterns match together: an automaton over all of them
    names.py          the lists in use split all names into finitely many classes, which no policy
                      can tell apart; each has a shortest example
    regions.py        writes a set of classes as patterns and exceptions
    access.py         what one role's policies allow: agents, tasks, sources, levels
    redundancy.py     which policies and entries do nothing, and what decides instead
    callers.py        who may act in a role: the agents that pass the identity checks
    difference.py     where two sets of policies decide differently
    matrix.py         what a role may read of each of some sources, in a cell
    rows.py           writes what was found as rows of JSON
    guardrails.py     the request that breaks a guardrail

The pattern language is small enough for that (`policies/definitions/wildcard.py`, from which both
the matcher and the classes are made). Pure, and knows no file and no service.
"""
