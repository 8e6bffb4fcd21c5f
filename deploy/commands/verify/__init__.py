"""`sluice verify`: verifies a log without the service, from a file, a database or a URL.

A process of its own, for auditors as much as for operators. It needs the base installation only;
`database` alone imports what the extra `server` installs, and only when it is asked for.
"""
