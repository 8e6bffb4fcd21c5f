"""Derives recorded decisions again, and holds the facts that they rest on against each other and
against the changes that the log recorded before them.

    recomputer    an entry at a time: findings and counts
    facts         the facts as an entry records them, read back
    registry      what the log's `change` entries say was in force, at which revision
"""
