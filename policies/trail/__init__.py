"""The audit trail: records, entries, hashes, checkpoints and verification (`audit-trail.md`)."""
