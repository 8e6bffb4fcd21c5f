"""`sluice doctor --cluster`: finds ways to bypass the sidecars of governed namespaces.

    command      arguments, reading the objects, the list of checks, findings as text or JSON
    snapshot     the objects, and how label selectors and NetworkPolicies relate them
    sources      the data sources that the sidecars of a namespace lead to
    namespaces   checks of namespaces, pods and the connections that NetworkPolicies allow
    rights       checks of RBAC and of the admission webhook and policies

The checks are pure functions of a snapshot. Nothing in the cluster is changed, and no Secret is
read.
"""
