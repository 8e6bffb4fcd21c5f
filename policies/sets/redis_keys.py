"""The names of the Redis keys that hold a tenant's policy set. The control API writes these keys,
and the sidecars read them.

A tenant's keys share a hash tag, so that on Redis Cluster they lie in one slot and one script may
touch them together. Knows names only.
"""

CHALLENGES = "sluice:challenges"
"""The key of a stream in which sidecars put random nonces, for the control API to answer each by a
signed heartbeat. Sidecars of every tenant can read it, so an entry reveals nothing about a tenant
but its id."""

WRITER_POSITION = b"at"
"""A field of the hash `set_key`: `<epoch>:<revision>`, unsigned, for those who write the set."""
HEAD = b"head"
"""A field of the hash `set_key`: the signed head of the policy set."""
HISTORY = b"keys"
"""A field of the hash `set_key`: the former signing keys, each with its endorsement of its
successor."""


def own_keys(tenant_id: str) -> str:
    """Return the pattern that all of a tenant's keys match, in the syntax of Redis's ACLs."""
    return f"{_tag(tenant_id)}:*"


def set_key(tenant_id: str) -> str:
    """Return the name of the hash that holds a policy set: its signed head, its documents, and the
    nodes of its Merkle map."""
    return f"{_tag(tenant_id)}:set"


def changes_key(tenant_id: str) -> str:
    """Return the name of the stream to which each new signed head is appended."""
    return f"{_tag(tenant_id)}:changes"


def beats_key(tenant_id: str) -> str:
    """Return the name of the stream to which each signed heartbeat is appended."""
    return f"{_tag(tenant_id)}:beats"


def doubts_key(tenant_id: str) -> str:
    """Return the name of the stream in which sidecars report those fields of the policy set's hash
    that they found missing or wrong."""
    return f"{_tag(tenant_id)}:doubts"


def session_key(tenant_id: str, session_id: str) -> str:
    """Return the name of the hash that tells which agent holds a session."""
    return f"{_tag(tenant_id)}:session:{session_id}"


# The prefixes keep documents, nodes and the three fields above apart.
def document_field(name: str) -> bytes:
    return b"d/" + name.encode()


def node_field(node: str) -> bytes:
    return b"n/" + node.encode()


def writer_position(epoch: str, revision: int) -> bytes:
    return f"{epoch}:{revision}".encode()


def _tag(tenant_id: str) -> str:
    # A brace in an id would end the hash tag early.
    safe = tenant_id.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return f"sluice:{{{safe}}}"
