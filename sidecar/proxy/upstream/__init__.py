"""The data source side: addresses that may be dialled, connections and their pool, requests out and
responses in.
"""
