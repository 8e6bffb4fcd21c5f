"""The console's pages of the area "Audit", one module each.

state.py        what is known of the log, its verification and its progress
checkpoints.py  the signed checkpoints, and who cosigned them
changes.py      who changed what, when
refused.py      records of sidecars that were refused
holds.py        legal holds
erasures.py     erasures of personal values
retention.py    how long records are kept, and what was purged
evidence.py     reports on an event or a session
downloads.py    the log, or its decisions, as files to verify or use elsewhere
"""

from control_api.console.page import Page
from control_api.console.views.audit import changes, checkpoints, evidence, retention

PAGES: tuple[Page, ...] = (
    *checkpoints.PAGES,
    *changes.PAGES,
    *retention.PAGES,
    *evidence.PAGES,
)
