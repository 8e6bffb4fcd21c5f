"""Follows logs as they grow, for everyone who watches: one reader for a tenant and process.

matching   which of the new entries each set of filters shows
reading    the new entries of a log
tails      the open tails, their readers, and what waits for each
"""
