"""Bytes in both directions: buffered connections, TLS on top of one, and the splice of two."""
