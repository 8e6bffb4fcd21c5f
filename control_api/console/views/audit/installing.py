"""How a reader of the console's audit pages installs what verifies the log offline."""

from policies.ground.distribution import WHEEL, install_command, wheel_digest


def installing() -> dict[str, str]:
    """Values for the template's `installing`: the wheel's file name, its SHA-256, the command."""
    return {"wheel": WHEEL, "digest": wheel_digest(), "install": install_command()}
