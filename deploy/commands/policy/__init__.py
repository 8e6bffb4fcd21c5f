"""`sluice policy`: answers the questions of an author of policies before a change is in force.

    __main__.py    the command line
    commands/      the commands, a module each
    sources.py     where policies come from: a directory, a file, or by git_tree.py a revision
    service.py     asks a running service
    formatting/    files laid out in one way
    schemas.py     the JSON Schemas that the package ships
    testing/       what the command `test` needs beside the pure runner
    text.py        rows of the analysis, for people

Works on files, with the base installation alone. Its answers come from `policies/`, which decides
everything as in a service.
"""
