"""`sluice redact`: erases a person from the audit trail, and reports to the person who asked.

command   the arguments, the question, the requests, and what is printed
target    whose values to erase, read so that no other user of the machine sees a person's id
report    what was erased, what stays and why, and how to check it, without any erased value
"""

from deploy.commands.client.redact.command import add_arguments

__all__ = ["add_arguments"]
