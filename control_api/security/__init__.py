"""Files with secrets, TLS files, addresses that may be called, random numbers."""
