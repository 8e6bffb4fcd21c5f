"""Use cases of erasure and legal holds, one operation or object a file."""
