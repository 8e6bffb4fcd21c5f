"""`sluice policy`: what an author of policies asks before a change is in force.

    __main__.py    the command line
    commands/      the commands, a module each
    sources.py     where policies come from: a directory, a file, or by git_tree.py a revision
    service.py     how a running service is asked
    formatting/    files laid out in one way
    schemas.py     the JSON Schemas that the package ships
    testing/       what the command `test` needs beside the pure runner
    text.py        rows of the analysis, for people

Works on files, with the base installation alone. What it says comes from `policies/`, which decides
nothing differently here than in a service.
"""
