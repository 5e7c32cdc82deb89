"""A person's own program on a device next door: `grader run`, `grader device`.

    run         runs a program there, unchanged     lent        keeps a device for another shell
    foreground  its terminal and its signals        borrowed    the device's options
    page        what reached the device, as text    quantities  reads sizes and rates

May call: what `app` may. No submission is graded here.
"""
