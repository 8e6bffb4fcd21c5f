"""The audit trail: records, entries, hashes, checkpoints and verification (`FORMAT.md`)."""
