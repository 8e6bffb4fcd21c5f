"""How many bytes the spool's segments take, and whether one more may be made. Knows no files."""


class Quota:
    """Counts files, not records: a segment takes its whole size from the moment it is made."""

    def __init__(self, most: int, held: int) -> None:
        self.held = held
        self._most = most

    def fits(self, size: int) -> bool:
        return self.held + size <= self._most

    def take(self, size: int) -> None:
        self.held += size

    def give(self, size: int) -> None:
        self.held -= size
