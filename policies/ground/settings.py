"""What unusable settings are: every complaint at once, before a file or a port is touched. Each
service reads its own."""


class SettingsError(Exception):
    """unusable settings; `complaints` names each, one sentence a piece"""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints
