"""Parses the arguments of the control API's commands, and lists their settings for `--help`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from control_api.settings import Settings, read
from control_api.settings_reader import ELSEWHERE
from policies.ground.addresses import ListenAddress
from policies.ground.process.settings_reader import PREFIX
from policies.ground.settings import entry, sentences

SERVE = "serve"
_STORE = ("data_dir", "database_url", "start_seconds")
_SIGNING = (
    "checkpoint_store",
    "database_connections",
    "database_seconds",
    "database_pooled",
    "log_level",
    "log_format",
)
_SETTINGS = {
    SERVE: tuple(field.name for field in fields(Settings)),
    "migrate": _STORE,
    "purge": (*_STORE, *_SIGNING),
    "rebuild-lists": (*_STORE, *_SIGNING[1:]),
    "accept-incarnation": (*_STORE, *_SIGNING),
    "rotate-key": ("data_dir",),
    "make-keys": (),
}
"""The settings that `--help` lists for each command. Like the service, every command checks all
settings, except those in `_MADE`."""
_MADE: dict[str, frozenset[str]] = {
    "make-keys": frozenset({f"{PREFIX}KEYS_DIR", f"{PREFIX}SUPERADMIN_KEY_FILE"})
}
"""The settings that name what a command creates. They are not checked for that command, since their
files need not exist yet."""

_MIGRATE = entry(
    f"{PREFIX}MIGRATE_DATABASE_URL", f"{PREFIX}DATABASE_URL", ELSEWHERE["MIGRATE_DATABASE_URL"]
)


def parse(arguments: Sequence[str]) -> Namespace:
    """Parse the arguments into `command` (`serve` by default) and the command's own arguments. Exit
    with code 2 if they are not valid."""
    # `serve` may be left out, even before options.
    given = [*arguments]
    if not given or given[0].startswith("-"):
        given.insert(0, SERVE)
    return _parser().parse_args(given)


def environ_of(command: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment variables that are checked for a command: all but those in `_MADE`."""
    made = _MADE.get(command, frozenset())
    return {name: text for name, text in environ.items() if name not in made}


def _parser() -> ArgumentParser:
    top = _ArgumentParser(prog="sluice", description="The control API and its commands.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(SERVE, prog="sluice control", description="Runs the control API.")
    migrate = commands.add_parser(
        "migrate",
        prog="sluice migrate",
        description="Upgrades the database's schema to the newest version.",
    )
    migrate.add_argument(
        "--finish",
        action="store_true",
        help="after an upgrade of every replica: let PostgreSQL also hold rows that older versions "
        "can't read. They no longer start on it. Refused for SQLite, which holds no such rows",
    )
    purge = commands.add_parser(
        "purge",
        prog="sluice purge",
        description="Removes now what retention would remove within the hour.",
    )
    purge.add_argument("--tenant", metavar="ID", help="purge only this tenant (default: all)")
    lists = commands.add_parser(
        "rebuild-lists",
        prog="sluice rebuild-lists",
        description="Makes what lists and counts read anew from the audit log, after somebody has "
        "changed the database beside it. The log itself stays as it is, and says that it was done.",
    )
    lists.add_argument("--tenant", metavar="ID", help="only this tenant's (default: all)")
    accept = commands.add_parser(
        "accept-incarnation",
        prog="sluice accept-incarnation",
        description="Lets a log that is behind its checkpoints be signed again, as a new "
        "incarnation. What was lost stays visible to everyone who verifies the log.",
    )
    accept.add_argument("--log", metavar="ID", required=True, help="the tenant of the log")
    accept.add_argument(
        "--reason", metavar="TEXT", required=True, help="why; it becomes part of the log"
    )
    commands.add_parser(
        "rotate-key",
        prog="sluice rotate-key",
        description="Replaces the signing key in the data directory; the old key endorses it.",
    )
    keys = commands.add_parser(
        "make-keys",
        prog="sluice make-keys",
        description="Creates the keys of an installation (`log.key`, `admin.key`, "
        "`superadmin.key`): in a directory, or in a Kubernetes Secret. It replaces no key. "
        "`superadmin.key` counts once SLUICE_SUPERADMIN_KEY_FILE names it, or its text is the "
        "value of SLUICE_SUPERADMIN_KEY.",
    )
    place = keys.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--secret",
        metavar="NAME",
        help="the Secret's name; run by a job of the Helm chart, in a pod whose service account "
        "may create Secrets",
    )
    place.add_argument(
        "--dir", type=Path, metavar="DIR", help="the directory, for SLUICE_KEYS_DIR; files are 0600"
    )
    return top


class _ArgumentParser(ArgumentParser):
    def format_help(self) -> str:
        """Add the settings to the help text. They are only read on demand, because their
        descriptions are parsed from a source file."""
        # `sluice control` and `sluice` itself show the settings of the service.
        name = self.prog.split()[-1]
        more = [_MIGRATE] if name == "migrate" else []
        lines = [*more, *settings(_SETTINGS.get(name, _SETTINGS[SERVE]))]
        if not lines:
            return super().format_help()
        return (
            f"{super().format_help()}\nsettings, read from the environment [default]:\n"
            + "".join(f"{line}\n" for line in lines)
        )


def settings(names: Iterable[str]) -> list[str]:
    """Return a help entry for each of these fields of `Settings`."""
    texts, defaults = sentences(Settings), read({})
    return [
        entry(PREFIX + name.upper(), _default(getattr(defaults, name)), texts[name])
        for name in names
    ]


def _default(value: object) -> str:
    """Return a default value as an operator would write it in the environment, or `not set`."""
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, (str, int, Path, ListenAddress)) else "not set"
