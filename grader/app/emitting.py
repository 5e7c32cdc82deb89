"""Gives out each report when it is there: to a person as text, to a program as JSON.

`text` and `jsonl` are printed as the reports come. `json` is one document at the end, whatever
ends the command: Ctrl-C and a fault of the grader leave a whole one too. Nobody may be reading
any more (`| head`): what is printed then is lost, and the verdict is not. How a report looks is
in `grader.app.report`.
"""

import os
import sys
from collections.abc import Sequence

from grader.app import report
from grader.records.verdict import Report, Reports


class NotWritten(Exception):
    """The reports cannot be written; the message says why."""


class Emitter:
    """Where the reports of one command go. `form` is "text", "json" or "jsonl".

    A command that `outlives_readers` goes on when nobody reads any more, for its exit code;
    another one ends with BrokenPipeError.
    """

    def __init__(
        self, form: str, *, brief: bool, outlives_readers: bool, verbose: bool = False
    ) -> None:
        self._form, self._brief, self._verbose = form, brief, verbose
        self._outlives_readers = outlives_readers
        self._out = report.console(outlives_readers=outlives_readers)
        self.reports: list[Report] = []
        self.problem = ""
        """What will be said at the end, apart from the reports."""

    def emit(self, done: Report) -> None:
        """Give out one report.

        Raises:
          NotWritten: the disk is full, say.
        """
        self.reports.append(done)
        if self._form == "jsonl":
            self._write(report.as_line(Reports(done.exit_code, [done])))
        elif self._form == "text":
            self._print(done)

    def _print(self, done: Report) -> None:
        try:
            if self._brief:
                report.print_brief(done, self._out)
            else:
                report.print_report(done, self._out, verbose=self._verbose)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _not_written(error) from error

    def finish(self, code: int, left: Sequence[str] = ()) -> None:
        """Give out what stands at the end: all reports, or what ended the command early.

        `code` is the command's exit code, `left` are exercises that were not graded.

        Raises:
          NotWritten: as `emit`.
        """
        if self._form == "json":
            self._write(report.as_json(Reports(code, self.reports, self.problem, list(left))))
        elif self._form == "jsonl" and (self.problem or left):
            self._write(report.as_line(Reports(code, [], self.problem, list(left))))

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()  # somebody may wait for it, and this process may be killed
        except BrokenPipeError:
            report.to_nobody()
            if not self._outlives_readers:
                raise
        except OSError as error:
            raise _not_written(error) from error


def _not_written(error: OSError) -> NotWritten:
    """What is still in the buffer goes nowhere, or the end of Python would raise again."""
    report.to_nobody()
    return NotWritten(f"cannot write the report: {error.strerror or os.strerror(error.errno or 5)}")
