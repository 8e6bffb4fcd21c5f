"""What the sidecar does with the control API: a client, its clock, the shipping of audit records,
and
receipts for them.
"""
