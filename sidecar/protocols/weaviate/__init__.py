"""Weaviate over HTTP (`protocols/RULES.md`, Weaviate).

routes.py  sources.py                      the table, and the collections of a request
forwarding.py  filter.py  lists.py         what is forwarded, and the filtered response
graphql.py  graphql_parser.py              a GraphQL request, its text, its fragments, and the
fragments.py  references.py                collections that its arguments refer to
names.py  definitions.py                   names of collections, and what they stand for
mcp.py                                     Weaviate's own MCP server
"""
