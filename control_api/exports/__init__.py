"""Audit events in the formats that security tools read, one event after the other.

`formats` is the table of them; each format is a module of its own. They take an event as
`policies.trail.entry.audit_event` shows it. The query text is in no format, and a user id that was
erased is left out. A denial that a source in mode `report` forwarded is a denial here as in the
log: its reason says that it was forwarded (`policies.trail.record.REPORT_PREFIX`).

Pure: knows neither the log nor HTTP.
"""
