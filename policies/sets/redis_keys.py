"""The Redis key names of a tenant's policy set, shared by the control API that writes them and the
sidecars that read them.

A tenant's keys share a hash tag, so that on Redis Cluster they lie in one slot and one script may
touch them together. Knows names only.
"""

CHALLENGES = "sluice:challenges"
"""A stream of nonces that sidecars want a heartbeat to answer. Sidecars of every tenant can read
it, so an entry reveals nothing about a tenant but its id."""

AT = b"at"
"""A field of the set's hash: `<epoch>:<revision>`, unsigned, for the writers."""
HEAD = b"head"
"""A field of the set's hash: the signed head."""
HISTORY = b"keys"
"""A field of the set's hash: the former signing keys, and the successor that each endorsed."""


def own_keys(tenant_id: str) -> str:
    """Return the pattern that all of a tenant's keys match, as Redis's ACLs write it."""
    return f"{_tag(tenant_id)}:*"


def set_key(tenant_id: str) -> str:
    """Return the key of a hash that holds the head, the documents and the nodes."""
    return f"{_tag(tenant_id)}:set"


def changes_key(tenant_id: str) -> str:
    """Return the key of a stream of heads."""
    return f"{_tag(tenant_id)}:changes"


def beats_key(tenant_id: str) -> str:
    """Return the key of a stream of heartbeats."""
    return f"{_tag(tenant_id)}:beats"


def doubts_key(tenant_id: str) -> str:
    """Return the key of a stream of those fields of the set that a sidecar found missing or
    wrong."""
    return f"{_tag(tenant_id)}:doubts"


def session_key(tenant_id: str, session_id: str) -> str:
    """Return the key of a hash that tells the holder of the session."""
    return f"{_tag(tenant_id)}:session:{session_id}"


# The prefixes keep documents, nodes and the three fields above apart.
def document_field(name: str) -> bytes:
    return b"d/" + name.encode()


def node_field(node: str) -> bytes:
    return b"n/" + node.encode()


def at(epoch: str, revision: int) -> bytes:
    return f"{epoch}:{revision}".encode()


def _tag(tenant_id: str) -> str:
    # A brace in an id would end the hash tag early.
    safe = tenant_id.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return f"sluice:{{{safe}}}"
