"""Steps that several use cases share: deciding, claiming a session, changing keys, policies and
tenants. Most of them run inside their caller's transaction."""
