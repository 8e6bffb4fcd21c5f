"""How an attempt to deliver ends where it does not succeed. Knows no channel."""


class DeliveryFailed(OSError):
    """the receiver did not take the delivery; `final` where trying again can't help"""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
