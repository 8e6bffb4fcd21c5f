"""The tables, by subject, and the version of the schema that a database has."""
