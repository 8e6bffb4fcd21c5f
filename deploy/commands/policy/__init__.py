"""`sluice policy`: tools for authors of policies, which say what policies allow and what a change
does before it is in force.

    __main__.py    the command line
    check.py       `lint` and `check`: errors in files, guardrails that do not hold
    access.py      `who` and `can`: what policies allow, now or at a past time
    diff.py        `diff` and `impact`: the effect of other policies
    candidate.py   `candidate`: a policy set that a service evaluates beside the active one
    test.py        `test`: the cases in test files; testing.py runs and reports them
    fmt.py         `fmt`: one layout for all files; layout.py reads and writes it
    init.py        `init`: a directory of policies to start with
    schema.py      `schema`: the JSON Schemas that the package ships
    sources.py     reads policies from a directory, a file or a git revision
    service.py     asks a running service
    text.py        the analysis in words, and options that several commands have

Works on files, with the base installation alone. The answers come from `policies/`, which decides
everything as in a service.
"""
