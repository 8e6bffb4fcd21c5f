"""Derives recorded decisions again, and compares the facts that they rest on with each other and
with the changes that the log recorded before them.

    recomputer    an entry at a time: findings and counts
    facts         the facts as an entry records them, read back
    registry      the documents in force at each revision, by the log's `change` entries
"""
