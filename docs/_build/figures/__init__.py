"""The figures that a reader can move: what a page holds of each, and the table that it reads.

    moving      their places in pages, their still forms, their tables
    still       tables that stand for figures where a page's scripts do not run
    NAME        where a figure stands, its title, and its still form
    NAME_table  a program of its own: asks JAX for what the figure shows, and prints it

What makes one move is `docs/assets/NAME.js`.
"""
