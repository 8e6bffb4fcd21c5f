"""Runs the suite: collects it once, and runs it in forks of the process that collected it."""
