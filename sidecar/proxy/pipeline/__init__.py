"""The steps of a request, in order: classify, resolve, authorize, forward, record the lineage."""
