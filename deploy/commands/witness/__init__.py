"""A witness of transparency logs: signs a log's checkpoint only if it continues the one before."""
