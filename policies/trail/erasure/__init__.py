"""The entries of erasures and of legal holds."""
