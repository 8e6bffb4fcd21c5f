"""Tests of policies: cases that the core decides, as in a service, and the policies that they leave
untested.

    file_form.py    the keys of a file of tests; parse.py makes cases of it
    cases.py        one case; a matrix, expanded only when it is run
    run.py          decides the cases, and tells those that expected something else
    coverage.py     the policies and entries that no case depends on

Pure: knows no file. `policies.definitions.load` reads YAML, and `sluice policy test` prints.
"""
