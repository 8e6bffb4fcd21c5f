"""The queries, by subject. Most take a connection or a transaction from their caller.

Against SQL injection, a value from outside is always a bound parameter, as SQLAlchemy's expressions
make it, and never becomes part of a statement's text.
"""
