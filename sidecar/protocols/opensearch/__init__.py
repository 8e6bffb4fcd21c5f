"""OpenSearch and Elasticsearch over HTTP (data-sources.md 5.3).

protocol.py  routes.py     the protocol and its table; `route_builders.py` and
blocked_routes.py          `blocked_routes.py` complete it
server.py  indices.py      what is known of one server: its names and its continuations
handlers/                  what each kind of request reads, and what happens to its response
documents/                 withholding documents by their own level
languages/                 the indices named in SQL, PPL and ES|QL
the others                 reading names, parameters and bodies
"""
