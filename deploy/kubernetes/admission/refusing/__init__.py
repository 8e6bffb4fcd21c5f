"""The rules by which pods are refused, one subject in each file. They are pure functions without
I/O."""
