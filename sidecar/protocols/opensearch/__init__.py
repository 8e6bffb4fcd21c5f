"""OpenSearch and Elasticsearch over HTTP (`protocols/RULES.md`, OpenSearch).

protocol.py  routes.py     the protocol and its table; `route_builders.py` and
blocked_routes.py          `blocked_routes.py` complete it
server.py  indices.py      the names and continuations known of one server
handlers/                  the sources of each kind of request, and the filters of its response
documents/                 withholding documents by their own level
languages/                 the indices named in SQL, PPL and ES|QL
the others                 reading names, parameters and bodies
"""
