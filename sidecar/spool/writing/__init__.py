"""The writing side of the spool: takes new records, and writes them into synced segments."""
