"""`python -m grader` and the command `grader`: one way in, also for an early Ctrl-C.

The working folder may be a student's, and hold a `rich.py`. Nothing is ever imported from there:
before anything else is imported, the folder leaves the import path, and the path that every
process inherits from this one. Only what Python loads before this file is out of reach.
"""

# ruff: noqa: PTH116, PTH117 (a Path would have to be imported first)

import gc
import os
import sys


def forget_working_folder() -> None:
    """Take the working folder out of the import path, here and in the environment."""
    try:
        here = os.stat(".")
    except OSError:  # it is gone: nothing can be imported from there
        return
    sys.path[:] = [folder for folder in sys.path if not _is(folder or ".", here)]
    if known := os.environ.get("PYTHONPATH"):
        kept = [folder for folder in known.split(os.pathsep) if not _is(folder or ".", here)]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)


def _is(folder: str, here: os.stat_result) -> bool:
    """Whether a folder of the import path is `here`, or says nothing but "wherever you are"."""
    try:
        return not os.path.isabs(folder) or os.path.samestat(os.stat(folder), here)
    except OSError:
        return False


def open_standard_streams() -> None:
    """Let streams that were closed (`>&-`) go nowhere; else the next file takes their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def come_again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a signal once more whose exception was lost; report all else that is lost as ever.

    A signal may come while Python runs a finalizer, or a weak reference's callback, as each import
    has one. What is raised there goes nowhere, and the command would run on for ever.
    """
    ends = isinstance(lost.exc_value, KeyboardInterrupt | SystemExit)
    code = getattr(lost.exc_value, "code", 130)
    if ends and isinstance(code, int) and code > 128:  # as shells say which signal it was
        import threading

        threading.Timer(0.01, os.kill, (os.getpid(), code - 128)).start()  # when that is over
    else:
        sys.__unraisablehook__(lost)


def run() -> None:
    """Import and run the command line."""
    forget_working_folder()
    open_standard_streams()
    sys.unraisablehook = come_again
    try:
        from grader.app.cli import main

        main()
    except KeyboardInterrupt as stop:
        sys.stderr.write("grader: stopped\n")
        sys.stderr.flush()
        # Not sys.exit: an interrupt that passed through an exec(), as in the import of a
        # dataclass, makes Python end by the signal whatever the code says.
        os._exit(getattr(stop, "code", 130))
    finally:
        gc.freeze()  # else Python looks for garbage once more, for a tenth of a second


if __name__ == "__main__":
    run()
