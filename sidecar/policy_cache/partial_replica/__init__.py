"""A partial replica: only the documents that decisions of this sidecar have used, read from Redis,
or from the control API while Redis is away. A sidecar with `redis` uses one. A document that it
lacks may still exist, and has to be looked up.

    replica            the replica as the rest of the sidecar sees it
    working_set        the documents held, on disk, and what the loops share
    redis_loop         follows Redis; redis_reader is how it reads
    signature_check    opens what the control API signed
    incremental_sync   brings the working set to the revision in Redis
    nonces             the challenges that prove a heartbeat is recent
    control_loop       follows the control API's long poll instead
    failover           decides which of the two loops is in use, and joins equal lookups
    agent_listing      lists all agents, for a search
"""
