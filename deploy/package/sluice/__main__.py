"""Starts the `sluice` command, as the console script or as `python -m sluice`, from a wheel or from
a checkout. Only finds the packages; `deploy.command` knows the commands."""

import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("lib")


def main() -> int:
    """Run the command that the arguments name, and return its exit code."""
    # In a checkout, only the wheel's own files are below this folder; the packages are on the path.
    if (PACKAGES / "deploy").is_dir():
        sys.path.insert(0, str(PACKAGES))
    from deploy.command import main as command  # only now can it be found

    return command()


if __name__ == "__main__":
    sys.exit(main())
