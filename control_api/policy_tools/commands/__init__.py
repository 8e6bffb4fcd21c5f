"""The commands of `sluice policy`, a module each: `add` gives its options to the command line,
with `run`, which takes them and returns the exit code."""
