"""The reading side of the spool: reads the records on disk in order, until they are acknowledged
and removed."""
