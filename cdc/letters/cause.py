"""What is looked for in the words of letters: a regular expression whose search ends, whatever it is. Pure.

Python's own tries one way after the other, for ever with `(.|.)*x`, and nothing else of the process goes on meanwhile.
RE2 goes over a text once, beside all else, and has therefore no look-around and no back-references.
"""

from __future__ import annotations

import time

from cdc.errors import ConfigError

# Of a processor, for all letters of one question: what people look for takes a tenth of a millisecond for each.
MAX_SECONDS = 60.0


class Cause:
    """One, for one question.

    Args:
        pattern: the regular expression; letter case does not matter.

    Raises:
        ConfigError: it is none that is taken (terminal).
    """

    def __init__(self, pattern: str) -> None:
        self._pattern, self._spent = pattern, 0.0
        try:
            self.found_in("")
        except ValueError as error:
            # Behind its words RE2 repeats the place.
            said = str(error).removeprefix("Invalid regular expression: ").partition(": ")[0]
            raise ConfigError(
                f"--cause {pattern!r} is no regular expression that is taken: {said}",
                fix=r"put a backslash before signs that are meant as they are: \[ \( \. \*; look-around (?=…) and"
                r" back-references \1 are not taken (RE2)",
            ) from error

    def found_in(self, *texts: str) -> bool:
        """Whether it is found in one of some texts.

        Raises:
            ConfigError: the question has taken too long (terminal).
        """
        import pyarrow as pa  # only who looks for a cause pays for it
        import pyarrow.compute as pc

        began = time.thread_time()
        whole = pa.array([text.encode("utf-8", "replace").decode() for text in texts])
        found = pc.any(pc.match_substring_regex(whole, self._pattern, ignore_case=True)).as_py()
        self._spent += time.thread_time() - began
        if self._spent > MAX_SECONDS:
            what = f"looking for --cause {self._pattern!r} took more than {MAX_SECONDS:.0f} s"
            raise ConfigError(what, fix="take a simpler expression, or name the sink, the view or the table too")
        return bool(found)
