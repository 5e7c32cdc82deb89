"""Reads a learner's file as text, beside the reference solution. Nothing of it is run.

What it may hold, before it runs:

    inspection  what a file must hold and keep     policy     what its text may do
    allowed     the policy's table                 scopes     what names stand for
    own         what a file itself makes           imported_names  what it imported, by any name
    classes     what its classes build on

What it waits for, and what of it ran:

    numbers     the numbers that a file names, which what is drawn has to reach
    unrun       what never ran of it, about which a pass says nothing

Where a failure's cause stands, after it ran:

    file        what a file defines, and where     places     the line that a failure is about
    statements  what in a function made a value    inlined    helpers in the place of their calls
    slips       what a text shows by itself        returns    a `return` that was forgotten
    sole_difference  the one place where a file parts from the reference solution
    trees       words for syntax trees

May call: `records`. No verdict is reached here.
"""
