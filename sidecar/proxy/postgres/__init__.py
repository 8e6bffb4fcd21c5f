"""Sessions of agents with a PostgreSQL server: each statement is judged by the relations that the
server itself reports, and its rows are released once they are known (`DESIGN.md` of
`sidecar/protocols/postgres/`)."""
