"""A body that arrives on a stream of HTTP/2: its sender gets credit for what its reader took."""

from collections.abc import Callable

from sidecar.http.messages.body import BodyBrokenOff, BodyStream


class CreditedBody(BodyStream):
    """A body that gives its sender credit for what its reader has taken, by `credit`: when the
    reader asks for more, the bytes before have been accepted where they went."""

    def __init__(self, credit: Callable[[int], None]) -> None:
        super().__init__()
        self._credit = credit
        self._owed = 0
        """Bytes taken for which the sender has no credit yet."""

    def take(self) -> bytes:
        self.give_credit()
        data = super().take()
        self._owed = len(data)
        return data

    async def next(self, seconds: float) -> bytes:
        # Before waiting: without credit, the sender could send nothing.
        self.give_credit()
        return await super().next(seconds)

    def give_credit(self) -> None:
        owed, self._owed = self._owed, 0
        if owed:
            self._credit(owed)

    def abandon(self) -> None:
        """Give credit for the bytes that no reader takes: the window of the connection counts them.
        A reader that goes on must not take the bytes before for the whole body."""
        if self._parts and self.failure is None:
            self.reject(BodyBrokenOff())
        self._owed += self.total_bytes - self._taken_bytes
        self._taken_bytes = self.total_bytes
        self._parts.clear()
        self.give_credit()
