"""ex10_diagnose: a function reads the report of a machine, and names the cause and the remedy."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Name the cause, and the remedy",
    lesson="lessons/05-who-decides-where-it-runs",
    anchor="reading-a-broken-machine",
    edits=("diagnose",),
    hints=(
        "One fault prints several lines. Which line of the report would be missing on a machine "
        "with another fault?",
        "Look first for texts that only one fault prints, and last for those that follow every "
        "fault. If no such text is there, versions and variables decide.",
        "For all faults that print an error, a list of (text, cause, remedy) is enough. Try it "
        "in order: `for sign, cause, remedy in SIGNS: if sign in report: return cause, remedy`",
    ),
)
