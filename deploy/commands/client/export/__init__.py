"""`sluice export`: the audit trail as a file that can be verified elsewhere (`sluice verify`).

command        the arguments, the attempts, and what is printed
download       one response of the control API, decompressed, line by line where needed
partial_file   the file while it is incomplete, and where to continue it
"""

from deploy.commands.client.export.command import add_arguments

__all__ = ["add_arguments"]
