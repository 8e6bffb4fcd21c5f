"""Use cases that say what policies allow, one operation a file."""
