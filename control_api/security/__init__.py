"""Files that hold secrets, TLS files, egress rules."""
