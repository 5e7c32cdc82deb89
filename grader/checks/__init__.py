"""The exercises: one folder for each, found by its name, in two halves that never meet.

    exNN_slug/__init__.py  title, lesson, what may be edited, hints
    exNN_slug/drive.py     runs a submission; imports JAX, in a worker
    exNN_slug/checks.py    judges the record; pure, in the grader's own process
    exNN_slug/facts.py     where there is one: what the drive writes down and the checks read

Whatever else lies in a folder, only that exercise needs. A drive may call `stages`,
`program`, `probes` and what these may; checks may call `judging`, `source` and `records` alone. No
exercise knows another.
"""
