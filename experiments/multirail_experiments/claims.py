"""Claims of papers, of other programs and of this project, and their verdicts."""

import enum
from typing import NamedTuple


class Source(enum.StrEnum):
    """Where the value comes from that a measurement is held against."""

    # A number, a figure or a sentence of one of the papers.
    PAPER = "paper"
    # Another program or another method, measured within the same minutes.
    PEER = "peer"
    # A limit that this project sets itself.
    LIMIT = "own limit"


REACHED, NOT_REACHED, NO_VERDICT = "reached", "not reached", "no verdict"


class Claim(NamedTuple):
    """One expectation and its verdict; values are text, as pages show them."""

    where: str
    text: str
    expected: str
    measured: str
    verdict: str
    note: str = ""
    source: Source = Source.PAPER
    # How often the values were measured; None: as often as the folder's least measured row.
    runs: int | None = None

    def withdrawn(self, why):
        """This claim without a verdict, and the reason in its note."""
        note = f"withdrawn: {why}" + (f"; {self.note}" if self.note else "")
        return self._replace(verdict=NO_VERDICT, note=note)


def number(value, digits=2, unit=""):
    text = "-" if value is None else f"{value:.{digits}f}"
    return f"{text} {unit}".strip()


def judged(is_reached):
    """The verdict of a comparison; None means that nothing was measured."""
    if is_reached is None:
        return NO_VERDICT
    return REACHED if is_reached else NOT_REACHED


def not_measured(where, text, expected="", source=Source.PAPER):
    return Claim(where, text, expected, "-", NO_VERDICT, "not measured", source)


def compare(where, text, paper, ours, *, unit="", digits=2, less=False, note="", runs=None):
    """A number of a paper: reached if ours is at least as large, or with `less` at most.

    Values are compared as they are shown: 1.979 reaches 1.98.
    """
    if ours is None:
        return not_measured(where, text, number(paper, digits, unit))
    shown, wanted = round(ours, digits), round(paper, digits)
    return Claim(
        where,
        text,
        number(paper, digits, unit),
        number(ours, digits, unit),
        judged(shown <= wanted if less else shown >= wanted),
        note,
        runs=runs,
    )


def demanded(
    where,
    text,
    ours,
    *,
    least=None,
    most=None,
    digits=2,
    unit="",
    note="",
    source=Source.LIMIT,
    runs=None,
):
    """A limit of this project: at least `least` or at most `most`, compared as shown."""
    limit = least if least is not None else most
    expected = f"{'>=' if least is not None else '<='} {limit:.{digits}f} {unit}".strip()
    if ours is None:
        return Claim(where, text, expected, "-", NO_VERDICT, note or "not measured", source)
    shown = round(ours, digits)
    is_reached = shown >= limit if least is not None else shown <= limit
    return Claim(
        where, text, expected, number(shown, digits, unit), judged(is_reached), note, source, runs
    )
