"""Small charts as inline SVG. Colours are CSS classes, so that one drawing serves light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 14, 54  # room for the larger letters of narrow screens

Scale = Callable[[float], float]


def recall_curve(
    first: np.ndarray, *, gallery: int, marked: Mapping[int, tuple[float, tuple[float, float] | None]], chance: float
) -> Markup:
    """Recall over K on a logarithmic axis; ``marked`` K have a dot, a label and, where known, their interval."""
    most = min(gallery, max(100, max(marked)))
    ks = np.unique(np.round(np.geomspace(1, most, 120)).astype(int))
    share = np.searchsorted(np.sort(first), ks, side="right") / len(first)
    x = _scale(0, math.log10(max(most, 2)), LEFT, WIDTH - RIGHT)
    y = _scale(0, 1, HEIGHT - BOTTOM, TOP)
    parts = [_vertical_axis(y)]
    ticks = [10**p for p in range(int(math.log10(max(most, 2))) + 1)]
    ticks += [t for p in ticks for t in (2 * p, 5 * p) if t <= most and len(ticks) < 4]
    parts += [_tick(x(math.log10(k)), f"{k:,}") for k in sorted(ticks)]
    parts.append(_axis_name("K: how many of the nearest are looked at"))
    expected = 1 - (1 - chance) ** ks
    parts.append(_path([(x(math.log10(k)), y(v)) for k, v in zip(ks, expected, strict=True)], "chance"))
    parts.append(_path([(x(math.log10(k)), y(v)) for k, v in zip(ks, share, strict=True)], "line"))
    for k, (value, interval) in marked.items():
        if k > most:
            continue
        cx, cy = x(math.log10(k)), y(value)
        between = ""
        if interval is not None:
            parts.append(f'<path class="whisker" d="M{cx:.1f} {y(interval[0]):.1f}V{y(interval[1]):.1f}"/>')
            between = f" ({percent(interval[0])} to {percent(interval[1])})"
        parts.append(_dot(cx, cy, f"Recall@{k}: {percent(value)} %{between}"))
    return _svg(parts, "Recall at K; the dashed line is what chance would find")


def similarity_histogram(edges: np.ndarray, positive: np.ndarray, negative: np.ndarray, *, what: str) -> Markup:
    """Two distributions over one axis, each with its own area of one."""
    shares = [counts / max(1.0, counts.sum()) for counts in (negative, positive)]
    top = max(float(share.max()) for share in shares) or 1.0
    x = _scale(float(edges[0]), float(edges[-1]), LEFT, WIDTH - RIGHT)
    y = _scale(0, top * 1.05, HEIGHT - BOTTOM, TOP)
    parts = [_tick(x(t), f"{t:g}") for t in nice_ticks(float(edges[0]), float(edges[-1]))]
    parts.append(f'<path class="axis" d="M{LEFT} {y(0):.1f}H{WIDTH - RIGHT}"/>')
    parts.append(_axis_name(what))
    for name, share in zip(("negative", "positive"), shares, strict=True):
        outline = [(x(float(edges[0])), y(0))]
        for left, right, value in zip(edges[:-1], edges[1:], share, strict=True):
            outline += [(x(float(left)), y(float(value))), (x(float(right)), y(float(value)))]
        outline.append((x(float(edges[-1])), y(0)))
        parts.append(_path(outline, f"area {name}"))
    for left, right, negatives, positives in zip(edges[:-1], edges[1:], *shares, strict=True):
        tip = f"{left:.3g} to {right:.3g}: {percent(positives)} % of positive, {percent(negatives)} % of negative pairs"
        parts.append(_hover(x(float(left)), x(float(right)), tip))
    return _svg(parts, "How similar positive pairs and negative pairs are")


def class_histogram(values: Sequence[float], *, what: str) -> Markup:
    """How many classes have a figure in each tenth from 0 to 1."""
    counts = np.histogram(np.asarray(values), bins=10, range=(0, 1))[0]
    top = max(1, int(counts.max()))
    x = _scale(0, 1, LEFT, WIDTH - RIGHT)
    y = _scale(0, top * 1.12, HEIGHT - BOTTOM, TOP)
    parts = [_tick(x(t / 5), f"{20 * t}") for t in range(6)]
    parts.append(f'<path class="axis" d="M{LEFT} {y(0):.1f}H{WIDTH - RIGHT}"/>')
    parts.append(_axis_name(what))
    for i, count in enumerate(counts.tolist()):
        left, right, high = x(i / 10) + 1, x((i + 1) / 10) - 1, y(count)
        tip = f"{10 * i} to {10 * i + 10} %: {count:,} {'class' if count == 1 else 'classes'}"
        if count:
            size = f'width="{right - left:.1f}" height="{y(0) - high:.1f}"'
            body = f'<rect class="bar" x="{left:.1f}" y="{high:.1f}" {size} rx="3"/>'
            label = f'<text class="value" x="{(left + right) / 2:.1f}" y="{high - 5:.1f}">{count:,}</text>'
            parts.append(f"<g>{_title(tip)}{body}{label}</g>")
    return _svg(parts, "How the classes fare")


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def breakable(text: object) -> Markup:
    """Escaped, with places where a long name of a file or class may break.

    >>> print(breakable("096.Hooded_Oriole"))
    096.Hooded_<wbr>Oriole
    """
    return escape(str(text)).replace("_", Markup("_<wbr>")).replace("/", Markup("/<wbr>"))


def nice_ticks(low: float, high: float, *, about: int = 6) -> list[float]:
    """Round numbers inside [low, high].

    >>> nice_ticks(-0.13, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    start = math.ceil(low / step - 1e-9)
    stop = math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(start, stop + 1)]


def _scale(low: float, high: float, start: float, stop: float) -> Scale:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _vertical_axis(y: Scale) -> str:
    lines = []
    for tenths in range(0, 11, 2):
        at = y(tenths / 10)
        lines.append(f'<path class="{"axis" if tenths == 0 else "grid"}" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        lines.append(f'<text class="tick left" x="{LEFT - 8}" y="{at + 4:.1f}">{10 * tenths}</text>')
    return "".join(lines)


def _tick(x: float, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}">{escape(text)}</text>'


def _axis_name(text: str) -> str:
    return f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}">{escape(text)}</text>'


def _path(points: Sequence[tuple[float, float]], name: str) -> str:
    return f'<path class="{name}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def _dot(x: float, y: float, tip: str) -> str:
    # A larger, invisible circle catches the pointer.
    return (
        f'<g>{_title(tip)}<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        f'<circle class="catch" cx="{x:.1f}" cy="{y:.1f}" r="14"/></g>'
    )


def _hover(left: float, right: float, tip: str) -> str:
    return (
        f'<g class="hover">{_title(tip)}<rect class="catch" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
        f'height="{HEIGHT - BOTTOM - TOP}"/></g>'
    )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _svg(parts: Sequence[str], name: str) -> Markup:
    """Every text in ``parts`` is escaped; all else in them are numbers."""
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, name, Markup("".join(parts))
    )
