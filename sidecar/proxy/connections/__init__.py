"""Bytes in both directions: buffered connections, TLS over one, and the splice of two."""
