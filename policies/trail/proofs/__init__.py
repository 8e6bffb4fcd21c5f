"""Proofs that outlive the service: inclusion and consistency (RFC 9162), and the text forms in
which they travel (C2SP `signed-note`, `tlog-cosignature`, `tlog-proof`)."""
