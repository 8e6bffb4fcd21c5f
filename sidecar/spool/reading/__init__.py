"""The reading side of the spool: what is on disk, in order, until it is acknowledged and gone."""
