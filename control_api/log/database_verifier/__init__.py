"""Verifies a log in its database, without the service. Needs the extra `server`."""
