"""What is wrong with a configuration, in words that name the place and show no value: one may be a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import yaml

from shared.config.engines.adapters import MAX_ADAPTERS
from shared.config.engines.engine import MAX_ALIASES, NO_PIPELINE, TASK_ANSWERS, ModelSpec
from shared.config.engines.model_source import adapter_source_problem, source_problem
from shared.config.engines.sampling import NO_SAMPLING
from shared.config.engines.scoring import DEFAULT_SCORE
from shared.config.hardware import MODELS

SPECULATING_KINDS = ("cpu", "reference")
"""Nodes that check guessed tokens: their rows have the same bits however many a sequence has in a step, or nearly."""


def doubles(section: str, names: Sequence[str], *, secret: bool = False) -> list[str]:
    """Names that are there more than once; a secret one is not shown."""
    return _twice(((f"{section}.{number}", name) for number, name in enumerate(names)), secret=secret)


def double_models(models: Sequence[ModelSpec]) -> list[str]:
    """Names of models, aliases and adapters that are there more than once: clients say any of them as ``model``."""
    named = [(f"models.{number}", model.name) for number, model in enumerate(models)]
    named += [
        (f"models.{number}.aliases.{place}", alias)
        for number, model in enumerate(models)
        for place, alias in enumerate(model.aliases)
    ]
    named += [
        (f"models.{number}.adapters.{place}", adapter.name)
        for number, model in enumerate(models)
        for place, adapter in enumerate(model.adapters)
    ]
    return _twice(named)


def _twice(named: Iterable[tuple[str, str]], *, secret: bool = False) -> list[str]:
    seen: set[str] = set()
    problems = []
    for place, name in named:
        if name in seen:
            problems.append(f"{place}: {'this key' if secret else repr(name)} is there twice")
        seen.add(name)
    return problems


def taken_names(nodes: Sequence[str], pools: Sequence[str], services: Sequence[str]) -> list[str]:
    """Nodes and pools that are called like a service, and pools whose nodes would be called like another node."""
    problems = [
        f"{section}.{number}.name: {name!r} is the name of a service; take another"
        for section, names in (("nodes", nodes), ("pools", pools))
        for number, name in enumerate(names)
        if name in services
    ]
    for number, pool in enumerate(pools):
        alike = [name for name in [*nodes, *pools] if re.fullmatch(re.escape(pool) + r"-[0-9]+", name)]
        problems += [f"pools.{number}.name: {name!r} is a name for a node of {pool!r}; take another" for name in alike]
    return problems


def shared_cpus(nodes: Iterable[tuple[str, Sequence[int]]]) -> list[str]:
    """CPUs of several nodes, given by name and CPUs: all nodes of one file run on one machine."""
    return _shared("cpus", [(name, [f"CPU {cpu}" for cpu in cpus]) for name, cpus in nodes])


def shared_devices(nodes: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """NVIDIA devices of several nodes, likewise: one node takes all of a device's memory."""
    return _shared("device", nodes)


def _shared(field: str, nodes: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    owners: dict[str, str] = {}
    problems = []
    for number, (name, parts) in enumerate(nodes):
        taken = [f"{part} belongs to {owners[part]!r}" for part in parts if part in owners]
        problems += [f"nodes.{number}.{field}: {problem} already" for problem in taken]
        owners |= {part: name for part in parts if part not in owners}
    return problems


def unknown_sizes(predict_as: Sequence[str | None]) -> list[str]:
    """Sizes of models that are in no catalogue."""
    return [
        f"models.{number}.predict_as: {name!r} is in no catalogue; there are: {', '.join(MODELS)}"
        for number, name in enumerate(predict_as)
        if name is not None and name not in MODELS
    ]


def bad_sources(sources: Sequence[str]) -> list[str]:
    """Sources of models that are of no kind."""
    found = ((number, source_problem(source)) for number, source in enumerate(sources))
    return [f"models.{number}.source: {problem}" for number, problem in found if problem]


def too_many_aliases(models: Sequence[ModelSpec]) -> list[str]:
    """Models with more than `MAX_ALIASES`."""
    counts = ((number, len(model.aliases)) for number, model in enumerate(models))
    return [
        f"models.{number}.aliases: there are {count}; a model has {MAX_ALIASES} at most"
        for number, count in counts
        if count > MAX_ALIASES
    ]


def adapter_problems(models: Sequence[ModelSpec], pipeline: str) -> list[str]:
    """Sources of adapters that are of no kind, and what cannot have adapters; ``pipeline`` is the engines'."""
    problems = []
    for number, model in enumerate(models):
        found = ((place, adapter_source_problem(adapter.source)) for place, adapter in enumerate(model.adapters))
        problems += [f"models.{number}.adapters.{place}.source: {problem}" for place, problem in found if problem]
        if (count := len(model.adapters)) > MAX_ADAPTERS:
            problems.append(f"models.{number}.adapters: there are {count}; a model has {MAX_ADAPTERS} at most")
        if model.adapters and model.load_format == "dummy":
            problems.append(
                f"models.{number}.load_format: 'dummy' makes weights up, which adapters cannot change; "
                "leave adapters out, or set it to auto"
            )
    adapted = [model.name for model in models if model.adapters]
    if adapted and pipeline != NO_PIPELINE:
        problems.append(
            f"engine.pipeline: {pipeline!r} cannot run beside adapters (of {', '.join(adapted)}); "
            "set it to off, or leave adapters out"
        )
    return problems


def task_problems(models: Sequence[ModelSpec]) -> list[str]:
    """Models that say what belongs to another task."""
    return [
        f"models.{number}.score: it says how a model is asked for scores; set task: score, or leave it out"
        for number, model in enumerate(models)
        if model.score != DEFAULT_SCORE and model.task != "score"
    ]


def sampling_problems(models: Sequence[ModelSpec]) -> list[str]:
    """Models that draw no tokens, and say how."""
    return [
        f"models.{number}.sampling: nothing is drawn with task: {model.task}; leave it out"
        for number, model in enumerate(models)
        if model.sampling != NO_SAMPLING and model.task != "generate"
    ]


def speculation_problems(models: Sequence[ModelSpec], nodes: Iterable[tuple[str, str]]) -> list[str]:
    """Models whose tokens are to be guessed, and cannot; ``nodes`` by name, with their kinds (`NodeTemplate.kind`)."""
    plain = next((name for name, kind in nodes if kind not in SPECULATING_KINDS), None)
    problems = []
    for number, model in enumerate(models):
        if model.speculation is None:
            continue
        if plain is not None:
            problems.append(
                f"models.{number}.speculation: needs executor: {' or '.join(SPECULATING_KINDS)} at every node; {plain} "
                "differs; leave it out"
            )
        if model.task != "generate":
            answers = TASK_ANSWERS[model.task]
            problems.append(f"models.{number}.speculation: {answers} have no tokens to guess; leave it out")
    return problems


_QUOTED = re.compile(r"""(['"])(?!<)(?:(?!\1).){2,}\1""")
"""What the library quotes, but for single characters and its own words, which stand in ``<>``."""


def describe_syntax(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may hold a secret, which the library may quote.

    A secret that begins with ``*`` or ``!`` and is not quoted is an alias or a tag to it.
    """
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _QUOTED.sub("'…'", str(error.problem))
        return f"{problem} in line {mark.line + 1}, column {mark.column + 1}"
    return str(error)


def listed(lines: Sequence[str]) -> str:
    """How many problems there are, and each on a line of its own."""
    count = f"{len(lines)} problem" + ("s" if len(lines) > 1 else "")
    return "\n".join([count, *(f"  - {line}" for line in lines)])
