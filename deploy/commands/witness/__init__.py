"""`sluice witness`: cosigns the checkpoints of transparency logs, for another organisation. It
signs a checkpoint only if the log's last signed checkpoint is a prefix of it, so that a log can't
show two versions of itself unnoticed."""
