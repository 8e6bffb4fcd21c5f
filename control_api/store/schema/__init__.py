"""The tables, by subject, and the schema version of a database."""
