"""Draw docs/pictures/results.svg: what each way to pool gains over averaging, kind by kind, without labels.

    python docs/pictures/results.py

The figures are those of docs/reports/fit.json; ``python benchmarks/fit.py … --json`` writes such a file.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE.parent / "reports" / "fit.json"
SHOWN = {
    "gem 3, half whitened": ("GeM, whitened by half", "#9aa5b1"),
    "jcf-pairs-32-8": ("jcf-pairs-32-8, as fitted by index", "#1f6feb"),
}
LEFT, TOP, BAR, GAP, SCALE = 150, 44, 13, 20, 50
"""Pixels: of the names, above the bars, of a bar, between kinds, and of a point of R@1."""


def drawn(figures: dict[str, dict[str, float]]) -> str:
    base = figures["average"]
    gains = {kind: [figures[row][kind] - base[kind] for row in SHOWN] for kind in base}
    low = min(0.0, *(g for row in gains.values() for g in row))
    high = max(g for row in gains.values() for g in row)
    zero = LEFT + 30 - low * SCALE
    width, height = zero + high * SCALE + 60, TOP + len(gains) * (len(SHOWN) * BAR + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="Points of R@1 gained over averaging, by kind of image">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    x = 10.0
    for name, colour in SHOWN.values():
        parts.append(f'<rect x="{x:.0f}" y="10" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17:.0f}" y="20" fill="#222">{escape(name)}</text>')
        x += 42 + 6.6 * len(name)
    y = float(TOP)
    for kind, row in gains.items():
        middle = y + len(SHOWN) * BAR / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end" fill="#222">{escape(kind)}</text>')
        for gain, (_, colour) in zip(row, SHOWN.values(), strict=True):
            start, length = zero + min(gain, 0) * SCALE, abs(gain) * SCALE
            parts.append(f'<rect x="{start:.1f}" y="{y:.1f}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            at, anchor = (start + length + 4, "start") if gain >= 0 else (start - 4, "end")
            place = f'x="{at:.1f}" y="{y + BAR - 3:.1f}" text-anchor="{anchor}"'
            parts.append(f'<text {place} font-size="10" fill="#444">{gain:+.1f}</text>')
            y += BAR
        y += GAP
    parts.append(f'<line x1="{zero:.1f}" y1="{TOP - 8}" x2="{zero:.1f}" y2="{y - GAP + 6:.1f}" stroke="#222"/>')
    parts.append(f'<text x="{LEFT}" y="{y + 4:.1f}" fill="#222">points of R@1 above averaging</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (HERE / "results.svg").write_text(drawn(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")
