"""The audit trail: records, entries, hashes, checkpoints and their verification
(`audit-trail.md`).
"""
