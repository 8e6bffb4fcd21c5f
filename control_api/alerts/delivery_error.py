"""The failure of a delivery attempt, over any channel."""


class DeliveryFailed(OSError):
    """the receiver did not accept the delivery; `final` if a retry can't help"""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
