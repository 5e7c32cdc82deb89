"""What a person meets: the commands, what is printed, files, watching, what is remembered.

`cli` parses commands, `files` finds the file of each exercise, `grading` grades them, `emitting`
gives out each report, `report` renders one, `saving` keeps records, `watching` judges what is
saved, `saves` notices it and `keys` reads the keyboard meanwhile, `progress` tells a learner
where they stand, `hints` gives the next hint, `remembered` keeps what was last graded and hinted,
`reset` writes starters, `updating` merges new ones, `doctor` examines the machine, `lingering`
decides whether a server may stay for the next check, `versions` says which JAX is supported,
`schemas` prints JSON Schemas.

`next_door` runs a person's own program on a device next door.

May call: `running`, `device`, `fences`, `course`, `judging`, `source`, `records`,
`program.targets`. No verdict is reached here, no process is fenced here, and JAX is never imported.
"""
