"""Verifies a log in ranges of consecutive entries, which are chunks of a file, so that several
processes can share the work, or rows of a database. Each check of an entry and of its place exists
once, here."""
