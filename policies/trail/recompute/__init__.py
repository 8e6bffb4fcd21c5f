"""Derives recorded decisions again, and compares the facts that they rest on with each other and
with the changes that the log recorded before them.

    recomputer    derives decisions, one entry at a time: findings and counts
    facts         reads back the facts that an entry records
    registry      the documents in force at each revision, by the log's `change` entries
    replay        makes recorded decisions again by other policies
"""
