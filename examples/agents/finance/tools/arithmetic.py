"""What the agent computes with."""


def subtract(a: float, b: float) -> float:
    """The first less the second."""
    return a - b


def divide(a: float, b: float) -> float:
    """The first over the second."""
    return a / b
