"""`sluice verify`: verifies a log without trusting the service that keeps it, from an export file,
a database or a URL.

It runs as a process of its own, for auditors as much as for operators. It needs the base
installation only; just `--database` needs the extra `server`, whose libraries are imported only
then.
"""
