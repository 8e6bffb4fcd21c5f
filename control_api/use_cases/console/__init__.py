"""Use cases on the sessions of the console, one operation a file."""
