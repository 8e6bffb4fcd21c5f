"""What runs beside the requests: the first start, policy files, retention, keys that expire, and
the
recovery of a database that was rolled back.
"""
