"""Withholds documents by their own level: a condition in the search, a check of the response."""
