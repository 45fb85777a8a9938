"""The page with a picture of each pooling: what the class says of itself, beside the picture that was drawn of it."""

from __future__ import annotations

import inspect

from secondsight.pooling import POOLINGS

INTRODUCTION = """# A picture of each pooling

A network gives an image as a set of local features x, here a grid of locations. A pooling makes one vector z of them.
Colours are codewords; a row of cells is a vector, a square of cells a matrix. Where z is a plain sum over locations,
every match can be [explained exactly](explaining.md).

`python docs/pictures/poolings.py` draws these pictures. `secondsight poolings` prints what each pooling costs.
"""


def page() -> str:
    lines = [INTRODUCTION]
    for name, kind in POOLINGS.items():
        lines += [f"## {name}", "", f"{kind.summary[0].upper()}{kind.summary[1:]}.", ""]
        lines += [f"![{name}](pictures/poolings/{name}.svg)", "", *_equation(kind)]
        numbers = f"Numbers in the name: {', '.join(f'`{o}`' for o in kind.name_options)}." if kind.name_options else ""
        expects = f"Expects {kind.expects}." if kind.expects else ""
        lines += [" ".join(filter(None, [f"{kind.paper}.", numbers, expects])), ""]
    return "\n".join(lines)


def _equation(kind: type) -> list[str]:
    """The first paragraph of a pooling's docstring, which is its equation."""
    first = (inspect.getdoc(kind) or "").partition("\n\n")[0].strip()
    return [f"    {' '.join(first.split())}", ""] if "=" in first else []
