"""Questions about all of a tenant's policies, answered in a process of their own.

    process.py     starts the process for one question, within limits of time, memory and number
    job.py         the question and the answer, as bytes between the two processes
    __main__.py    the process: reads a job, answers it, ends
    questions.py   the questions: what a change allows and denies, who may read what
    review.py      what a change of policies does: differences, guardrails, tests

An analysis computes for seconds. In a thread it would take turns with the event loop, and
evaluations would wait; and a thread can't be ended when its time is up.
"""
