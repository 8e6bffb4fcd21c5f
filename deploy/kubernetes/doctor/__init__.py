"""`sluice doctor --cluster`: finds ways to bypass a governed namespace.

    command      arguments, exit code
    collect      reads objects with kubectl, or from a file
    snapshot     the objects, and how they refer to each other
    selectors    label selectors, and the peers and ports of NetworkPolicies
    sources      the data sources that the sidecars of a namespace lead to
    output       findings, as text or JSON
    checks       the list of checks; the files namespaces, pods, routes, admission and rights
                 contain them

The checks are pure functions of a snapshot. Nothing in the cluster is changed, and no Secret read.
"""
