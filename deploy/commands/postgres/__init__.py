"""`sluice postgres`: the second wall of a `postgres` source, made from the policies: the rights of
the login role in the server itself, a check of what it can reach there, and the identity that row
policies read."""
