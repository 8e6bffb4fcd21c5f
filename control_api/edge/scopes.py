"""What the keys of callers may do, and which keys a route accepts."""

from enum import StrEnum


class Scope(StrEnum):
    """What a key may do (`CONTRACT.md`, Scopes). A closed set, because it is a metric's label."""

    evaluate = "evaluate"
    read = "read"
    admin = "admin"
    sidecar = "sidecar"
    superadmin = "superadmin"


# INVARIANT: an admin may do everything in its tenant (`CONTRACT.md`, Scopes), so every tenant route
# that needs a key accepts `admin`. The superadmin belongs to no tenant and has its own routes.
EVALUATE = frozenset({Scope.evaluate, Scope.admin})
READ = frozenset({Scope.read, Scope.admin})
ADMIN = frozenset({Scope.admin})
SIDECAR = frozenset({Scope.sidecar, Scope.admin})
SUPERADMIN = frozenset({Scope.superadmin})
# Who may sign in to the console.
PEOPLE = READ | SUPERADMIN
OPEN = None
