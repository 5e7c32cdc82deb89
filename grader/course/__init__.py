"""Finds the pieces of the course by their file names: exercises, solutions and starters.

May call: `judging`, for the words in which an exercise describes itself, `source` and `records`.
"""
