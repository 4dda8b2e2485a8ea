"""Labels of pictures and pages: cut so that they leave room for others, and moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Sequence


def cut(text: str, n_characters: int) -> str:
    """A text on one line; of a long one the middle is left out, as names often differ at their end.

    Example:
        >>> cut("departure airport", 9), cut("hour", 9)
        ('depa…port', 'hour')
    """
    text = " ".join(text.split())
    if len(text) <= n_characters:
        return text
    end = (n_characters - 1) // 2
    return f"{text[: n_characters - 1 - end]}…{text[len(text) - end :]}"


def value_label(name: str, value: str, n_characters: int) -> str:
    """The label `field: value`, in which neither part can crowd out the other.

    Example:
        >>> value_label("departure airport", "EWR", 14), value_label("hour", "between seven and nine", 14)
        ('depa…port: EWR', 'hour: betw…ine')
    """
    room = n_characters - 2
    kept = cut(value, max(room - len(name), room // 2))
    return f"{cut(name, room - len(kept))}: {kept}"


def spread(values: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Rising places near rising values, at least `gap` apart, and within `low` to `high` where there is room.

    Example:
        >>> spread([0.0, 1.0, 9.0, 10.0], 0.0, 10.0, 2.0)
        [0.0, 2.0, 8.0, 10.0]
    """
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap) if places else max(value, low))
    top = high
    for position in reversed(range(len(places))):
        places[position] = min(places[position], top)
        top = places[position] - gap
    return places
