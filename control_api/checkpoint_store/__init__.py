"""The checkpoint store: signed notes, kept outside the database that they are about."""
