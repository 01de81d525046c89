"""Where things are: on the pages by address, in an exported file by the place within it."""

from urllib.parse import quote, urlencode


def _segment(text: str) -> str:
    return quote(text, safe="")


class Links:
    """Addresses of the served pages."""

    live = True
    """Whether there are other pages to go to."""

    def run(self, run: str, **query: object) -> str:
        """The page of a run."""
        return f"/runs/{_segment(run)}{_query(query)}"

    def step(self, run: str, step: int) -> str:
        """The page of a step."""
        return f"{self.run(run)}/steps/{step}"

    def case(self, run: str, step: int, case: str) -> str:
        """What happened in one case in one step."""
        return f"{self.step(run, step)}/cases/{_segment(case)}"

    def cases(self, run: str, **query: object) -> str:
        """The matrix of cases."""
        return f"{self.run(run)}/cases{_query(query)}"

    def numbers(self, run: str) -> str:
        """The numbers that were tuned."""
        return f"{self.run(run)}/numbers"

    def refine(self, run: str) -> str:
        """The refinements of a run."""
        return f"{self.run(run)}/refine"

    def compare(self, *runs: str) -> str:
        """Runs side by side."""
        return f"/compare{_query({'run': runs})}"


class Places(Links):
    """Addresses within an exported file: what is not in it has none."""

    live = False

    def __init__(self, steps: set[int]) -> None:
        self._steps = steps

    def run(self, run: str, **query: object) -> str:
        """The top."""
        return "#top"

    def step(self, run: str, step: int) -> str:
        """The section of a step, where it has one."""
        return f"#step-{step}" if step in self._steps else "#main"

    def case(self, run: str, step: int, case: str) -> str:
        """The section of its step."""
        return self.step(run, step)

    def cases(self, run: str, **query: object) -> str:
        """The top."""
        return "#top"

    def numbers(self, run: str) -> str:
        """The top."""
        return "#top"

    def refine(self, run: str) -> str:
        """The top."""
        return "#top"


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "", ())}
    return f"?{urlencode(given, doseq=True)}" if given else ""
