"""Connections that are not plain requests to a listener: CONNECT, redirected connections, TLS that
is
passed through or opened.
"""
