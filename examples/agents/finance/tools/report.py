"""The report that the agent is asked about."""

FIGURES = {
    ("revenue", 2018): 181001,
    ("revenue", 2019): 206588,
    ("costs", 2018): 120500,
    ("costs", 2019): 131600,
    ("staff", 2019): 412,
}


def lookup(figure: str, year: int) -> int:
    """A figure of a year."""
    if (figure, year) not in FIGURES:
        raise ValueError(f"the report has no {figure} of {year}")
    return FIGURES[figure, year]
