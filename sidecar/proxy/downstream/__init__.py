"""The agent's side: accepts connections, reads requests one after the other, writes responses."""
