"""The data source's side: which addresses may be dialled, connections and their pool, requests out
and responses in."""
