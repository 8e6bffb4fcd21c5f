"""A full replica: every document of the tenant's policy set, fetched over HTTP by long poll."""
