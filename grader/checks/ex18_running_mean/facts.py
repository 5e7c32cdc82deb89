"""The names of ex18_running_mean: the learner's function, and its program for more updates."""

NAME = "mean_of_updates"
"""The function, and its program for about a thousand updates."""
LONG = "mean_of_updates, 8 times as many"
"""Its program for eight times as many updates."""
