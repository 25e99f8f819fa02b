"""Chats whose answers copy much of the prompt, or little, for speculation.py; each number gives other texts."""

from __future__ import annotations

import random

NAMES = ("Alma", "Boris", "Chen", "Dara", "Emil", "Fatima", "Goran", "Hana", "Ivo", "Jamila", "Kofi", "Lena")
CITIES = ("Lisbon", "Oslo", "Quito", "Perth", "Turin", "Dakar", "Leeds", "Osaka")
TRADES = ("baker", "nurse", "pilot", "farmer", "teacher", "plumber", "chemist", "driver")
THINGS = ("bridge", "garden", "library", "harbour", "market", "station", "tower", "museum")
TOPICS = (
    "a lighthouse",
    "two rivals",
    "a lost dog",
    "the first snow",
    "an old clock",
    "a night train",
    "a small island",
)


def copied(number: int) -> str:
    """A text to be repeated."""
    numbers = random.Random(number)
    lines = [
        f"The {numbers.choice(THINGS)} of {numbers.choice(CITIES)} was opened in {numbers.randint(1800, 2020)} by "
        f"{numbers.choice(NAMES)}, a {numbers.choice(TRADES)}, after {numbers.randint(2, 30)} years of work."
        for _ in range(5)
    ]
    return "Repeat the following text exactly, and say nothing else:\n\n" + " ".join(lines)


def code(number: int) -> str:
    """A function of which one name changes."""
    numbers = random.Random(number)
    name, thing = numbers.choice(TRADES), numbers.choice(THINGS)
    return (
        f"Rename the variable `total` to `result` in this code and print all of the code:\n\n```python\n"
        f"def count_{thing}(items, {name}, limit={numbers.randint(2, 99)}):\n"
        f"    total = 0\n    for item in items:\n        if item.{name} == {name}:\n"
        f"            total += item.{thing}\n        elif item.{thing} > limit:\n"
        f"            total -= item.{thing} - limit\n    if total < 0:\n"
        f'        raise ValueError("no {thing} of this {name}")\n    return total\n```'
    )


def record(number: int) -> str:
    """People to be listed as JSON."""
    numbers = random.Random(number)
    people = [
        f"{numbers.choice(NAMES)} is {numbers.randint(20, 80)} years old, works as a {numbers.choice(TRADES)} and "
        f"lives in {numbers.choice(CITIES)}."
        for _ in range(4)
    ]
    return (
        "List the people of this text as a JSON array of objects with the keys name, age, job and city:\n\n"
        + " ".join(people)
    )


def story(number: int) -> str:
    """Nothing to copy."""
    numbers = random.Random(number)
    return f"Write a short story about {numbers.choice(TOPICS)} and {numbers.choice(NAMES)}, number {number}."


KINDS = {"copy": copied, "code": code, "json": record, "story": story}
