"""Speaks PostgreSQL's wire protocol, versions 3.0 and 3.2, with agents and with servers: frames,
typed messages, startup, TLS and login. Reads no SQL, and decides nothing."""
