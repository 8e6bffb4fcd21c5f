"""What the keys of a tenant's policy set are called in Redis, for both who write and who read them.

All keys of a tenant share a hash tag, so that on a cluster they lie in one slot and one script may
touch them together. Knows names alone.
"""

CHALLENGES = "sluice:challenges"
"""A stream: what sidecars of all tenants want answered by a heartbeat. All of them may read it, so
nothing of a tenant's stands in it but its id."""

AT = b"at"
"""A field of the set: `<epoch>:<revision>`, unsigned, for whoever writes."""
HEAD = b"head"
HISTORY = b"keys"
"""A field of the set: by which key the log was signed before, and which it endorsed."""


def set_key(tenant_id: str) -> str:
    """A hash: the head, documents and nodes."""
    return f"{_tag(tenant_id)}:set"


def changes_key(tenant_id: str) -> str:
    """A stream of heads."""
    return f"{_tag(tenant_id)}:changes"


def beats_key(tenant_id: str) -> str:
    """A stream of heartbeats."""
    return f"{_tag(tenant_id)}:beats"


def doubts_key(tenant_id: str) -> str:
    """A stream: which fields of the set a sidecar did not find as they should be."""
    return f"{_tag(tenant_id)}:doubts"


def session_key(tenant_id: str, session_id: str) -> str:
    """A hash: whose the session is."""
    return f"{_tag(tenant_id)}:session:{session_id}"


def document_field(name: str) -> bytes:
    return b"d/" + name.encode()


def node_field(node: str) -> bytes:
    return b"n/" + node.encode()


def at(epoch: str, revision: int) -> bytes:
    return f"{epoch}:{revision}".encode()


def _tag(tenant_id: str) -> str:
    # A brace in an id would end the tag early.
    safe = tenant_id.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return f"sluice:{{{safe}}}"
