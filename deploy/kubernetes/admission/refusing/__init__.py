"""The rules by which pods are refused, a subject a file. Pure functions, no I/O."""
