"""The grader's side of every process: it starts workers, asks them, and ends them.

The way of one submission:

    grade       one grading, from a file to a `Record`
    submitted   opens the file of a submission, and follows no link to it
    sides       drives one file, and measures its programs; reference and submission alike
    pacing      times a Python loop against the reference's, with the clock outside
    session     hands out workers on the devices that an exercise asks for
    next_door   a device next door for each worker that is the client of one
    launch      starts worker processes: from a fork server, or one by one
    process     one worker process, seen from outside: questions, answers, deadlines, its end
    forkserver  the process that has imported JAX once, and forks workers
    compiled    what the reference compiled, which a submission need not compile again
    kept        how a process stays for later commands, is found again, and ends
    imported    whether the disk still holds what a process has imported
    messages    what the grader and its workers say to each other

May call: `program.targets`, `course`, `device`, `judging`, `source`, `records`, `fences`. What
runs inside a worker is in `grader.worker`, which is named here and never imported: it imports JAX.
"""
