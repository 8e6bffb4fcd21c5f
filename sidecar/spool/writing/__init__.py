"""The writing side of the spool: from a new record to a synced segment."""
