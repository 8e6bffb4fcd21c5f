"""A full replica: every document of the tenant's policy set, fetched over HTTP by long poll. A
sidecar without `redis` uses one. A document that it lacks does not exist.

    replica         the replica as the rest of the sidecar sees it
    poll_loop       polls the control API, and puts in force what may be trusted
    store           the documents on disk, in force or still arriving
    agent_listing   lists all agents, for a search
"""
