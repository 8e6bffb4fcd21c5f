"""The address that the packet filter redirects for every user, the sidecar's own too. A sidecar
that connects there must find itself; otherwise the rules are gone (`sidecar/redirect/README.md`).

Knows one address for each IP version, and nothing of who uses it.
"""

RESERVED = {4: "192.0.2.20", 6: "2001:db8::20"}
"""By IP version. From the ranges for documentation (RFC 5737, RFC 3849): no source is there."""
RESERVED_PORT = 1
