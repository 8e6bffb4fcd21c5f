"""The error for invalid settings: all complaints at once, before a file or a port is touched. Each
service reads its own settings."""


class SettingsError(Exception):
    """invalid settings; `complaints` has one sentence for each"""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints
