"""Tests of policies: cases that the core decides, as in a service, and the policies that they leave
untested.

    file_form.py    the keys of a test file
    cases.py        makes the cases of a file; a matrix is expanded only when it is run
    run.py          decides the cases, tells those that expected something else, and finds the
                    policies and entries on which no case depends

Pure: knows no file. `policies.definitions.load` reads YAML, and `sluice policy test` prints.
"""
