"""Programs that differ from a given one in one place: what a test that cannot fail does not notice.

One change each, where a formula can be wrong: an operator, a comparison, a number, a condition, the larger for the
smaller one, or nothing returned (R. DeMillo, R. Lipton, F. Sayward, Hints on Test Data Selection, IEEE Computer 11(4),
1978). Annotations, decorators and texts stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
NOT_COMPUTED = {"annotation", "returns", "type_params", "decorator_list"}  # fields of a syntax tree


class Mutant(NamedTuple):
    """The program with one change."""

    line: int
    change: str
    source: str


def mutants(source: str, ignored: Collection[str] = ()) -> list[Mutant]:
    """All of a program, in the order of its lines; functions with an ``ignored`` name stay as they are."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for parent, field, node in list(_places(tree, ignored)):
        for other in _changed(node):
            _put(parent, field, node, other)
            change = f"{_head(node)} -> {_head(other)}"
            found.append(Mutant(node.lineno, change, ast.unparse(ast.fix_missing_locations(tree))))
            _put(parent, field, other, node)
    return sorted(found, key=lambda mutant: mutant.line)


def _places(parent: ast.AST, ignored: Collection[str]) -> Iterator[tuple[ast.AST, str, Any]]:
    """Every expression and statement that is computed, with the field of its parent that it is in."""
    for field, value in ast.iter_fields(parent):
        if field in NOT_COMPUTED:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_text(node) or getattr(node, "name", None) in ignored:
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield parent, field, node
            yield from _places(node, ignored)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _put(parent: ast.AST, field: str, old: ast.AST, new: ast.AST) -> None:
    value = getattr(parent, field)
    if isinstance(value, list):
        value[:] = [new if one is old else one for one in value]
    else:
        setattr(parent, field, new)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in this place."""
    match node:
        case ast.Compare(left, ops, comparators):
            for place, one in enumerate(ops):
                yield ast.Compare(left, [*ops[:place], COMPARISONS[type(one)](), *ops[place + 1 :]], comparators)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from [ast.Constant(value * 2), ast.Constant(value * 0)] if value else [ast.Constant(value + 1)]
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Return(ast.expr()):
            yield ast.Return(ast.Constant(None))
        case _:
            yield from _other_operations(node)


def _other_operations(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in OPERATORS:
            yield ast.AugAssign(target, OPERATORS[type(op)](), value)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Call(ast.Name(name), arguments, keywords) if name in FUNCTIONS:
            yield ast.Call(ast.Name(FUNCTIONS[name]), arguments, keywords)
        case _:
            return


def _head(node: ast.AST) -> str:
    """Its text, of a statement with others inside only the first line."""
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
