"""Draw a picture of each pooling: what it makes of one location, how locations are added up, what comes out.

    python docs/pictures/poolings.py            # writes docs/pictures/poolings/NAME.svg

A picture is a row of glyphs. Colours are codewords; a row of cells is a vector, a square of cells a matrix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent / "poolings"
COLOURS = ("#3ebd93", "#f7c948", "#e8684a")
PLAIN = "#829ab1"
HEIGHT, TOP, BOX, GAP = 132, 18, 64, 50

STYLE = (
    ".s{fill:#52606d;font-size:11.5px;text-anchor:middle}.o{fill:#1f2933;font-size:15px;text-anchor:middle}"
    ".a{stroke:#52606d;stroke-width:1.4;fill:none}.w{stroke:#fff;stroke-width:.8}"
    "@media (prefers-color-scheme:dark){.s{fill:#9fb3c8}.o{fill:#f0f4f8}.a{stroke:#9fb3c8}.w{stroke:#1f2933}}"
)

Glyph = Callable[[float, float], str]


def cell(x: float, y: float, w: float, h: float, colour: str, opacity: float = 1.0) -> str:
    faded = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    return f'<rect class="w" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{colour}"{faded}/>'


WORDS = (0, 0, 1, 1, 1, 0, 2, 2, 1, 1, 0, 2, 2, 2, 1, 0, 0, 2, 1, 1, 0, 0, 0, 1, 1)  # of a 5 × 5 grid of locations
HEAT = (
    0.1,
    0.2,
    0.3,
    0.2,
    0.1,
    0.2,
    0.8,
    1.0,
    0.4,
    0.1,
    0.2,
    0.9,
    1.0,
    0.6,
    0.2,
    0.1,
    0.4,
    0.7,
    0.3,
    0.1,
    0.1,
    0.1,
    0.2,
    0.1,
    0.1,
)


def grid(words: bool = False, heat: bool = False) -> Glyph:
    """The locations of an image: plain, coloured by codeword, or weighed by attention."""

    def draw(x: float, y: float) -> str:
        s = BOX / 5
        return "".join(
            cell(x + s * (i % 5), y + s * (i // 5), s, s, COLOURS[WORDS[i]] if words else PLAIN, HEAT[i] if heat else 1)
            for i in range(25)
        )

    return draw


def vector(colour: str = PLAIN, n: int = 8) -> Glyph:
    def draw(x: float, y: float) -> str:
        h = BOX / n
        return "".join(cell(x + BOX / 2 - 7, y + h * i, 14, h, colour, 0.45 + 0.55 * (i * 5 % n) / n) for i in range(n))

    return draw


def product() -> Glyph:
    """Two projections, multiplied number by number."""

    def draw(x: float, y: float) -> str:
        middle = f'<text class="o" x="{x + BOX / 2:.1f}" y="{y + BOX / 2 + 5:.1f}">∘</text>'
        return vector(COLOURS[0])(x - 20, y) + middle + vector(COLOURS[1])(x + 20, y)

    return draw


def matrix(colour: str = PLAIN, n: int = 6, *, symmetric: bool = False, diagonal: bool = False) -> Glyph:
    def draw(x: float, y: float) -> str:
        s = BOX / n
        shown = [(i, j) for i in range(n) for j in range(n) if not symmetric or j >= i]
        opacity = {
            (i, j): 1.0 if i == j else 0.15 if diagonal else 0.35 + 0.5 * ((i * j + i + j) % 4) / 4 for i, j in shown
        }
        return "".join(cell(x + s * j, y + s * i, s, s, colour, opacity[i, j]) for i, j in shown)

    return draw


def by_word(part: str, size: int = 3) -> Glyph:
    """One block for each codeword: a vector, a matrix, or mean and deviation."""

    def draw(x: float, y: float) -> str:
        out = ""
        for word, colour in enumerate(COLOURS):
            top = y + (BOX + 6) / 3 * word
            for i in range(size if part == "matrix" else 2 if part == "moments" else 1):
                for j in range(size if part == "matrix" else 8):
                    w, h = (17 / size, 17 / size) if part == "matrix" else (BOX / 8, 8 if part == "moments" else 14)
                    left = x + (BOX - 17) / 2 if part == "matrix" else x
                    out += cell(left + w * j, top + h * i, w, h, colour, 0.45 + 0.55 * ((i + 1) * (j + 2) % 5) / 5)
        return out

    return draw


def pairs_of_words() -> Glyph:
    """A block for every pair of codewords."""

    def draw(x: float, y: float) -> str:
        s = BOX / 3
        blends = [(COLOURS[i], COLOURS[j], i, j) for i in range(3) for j in range(3)]
        return "".join(
            cell(x + s * j, y + s * i, s / 2, s, a) + cell(x + s * j + s / 2, y + s * i, s / 2, s, b)
            for a, b, i, j in blends
        )

    return draw


def bars(highest: bool = False, power: bool = False) -> Glyph:
    """One channel over locations: its maximum, or all of it under a power."""

    def draw(x: float, y: float) -> str:
        heights = [0.3, 0.5, 0.2, 1.0, 0.4, 0.6, 0.25, 0.8]
        heights = [h**2.5 for h in heights] if power else heights
        w = BOX / len(heights)
        return "".join(
            cell(x + w * i, y + BOX * (1 - h), w, BOX * h, COLOURS[2] if highest and h == 1 else PLAIN)
            for i, h in enumerate(heights)
        )

    return draw


def scattered() -> Glyph:
    """Numbers thrown into random bins with random signs."""

    def draw(x: float, y: float) -> str:
        out = ""
        for i, bin in enumerate((3, 0, 5, 1, 6, 2)):
            a, b = y + 6 + 9.5 * i, y + 4 + 9 * bin
            out += f'<path class="a" d="M{x + 10:.1f} {a:.1f}L{x + BOX - 10:.1f} {b:.1f}"/>'
            out += cell(x, a - 4, 9, 8, PLAIN) + cell(x + BOX - 9, b - 4, 9, 8, COLOURS[i % 2])
        return out

    return draw


def plane() -> Glyph:
    """A subspace: two axes in a cloud."""

    def draw(x: float, y: float) -> str:
        dots = "".join(
            f'<circle cx="{x + 8 + 6.7 * i:.1f}" cy="{y + 52 - 5 * i + (7, -9, 3, -4, 8)[i % 5]:.1f}" r="2.6" fill="{PLAIN}"/>'
            for i in range(8)
        )
        axes = f'<path class="a" d="M{x + 6} {y + 56}L{x + 60} {y + 14}M{x + 24} {y + 20}L{x + 42} {y + 48}"/>'
        return dots + axes

    return draw


def neighbours() -> Glyph:
    """A location and the half of its neighbours that it is multiplied with."""

    def draw(x: float, y: float) -> str:
        s = BOX / 5
        arrows = "".join(
            f'<path class="a" stroke-width="2" d="M{x + 2.5 * s:.1f} {y + 1.5 * s:.1f}l{dx * s:.1f} {dy * s:.1f}"/>'
            for dx, dy in ((1, 0), (-1, 1), (0, 1), (1, 1))
        )
        return grid(words=True)(x, y) + arrows

    return draw


SUM, MEAN = "Σ", "mean"
X, WORD = (grid(), "locations x"), (grid(words=True), "x → codeword")
SOFT = (grid(words=True), "x → h(x)")

PICTURES: dict[str, list[tuple[Glyph, str] | str]] = {
    "average": [X, MEAN, (vector(), "mean of x"), "W", (vector(COLOURS[0]), "z")],
    "max": [X, "", (bars(highest=True), "one channel"), "max", (vector(COLOURS[2]), "z")],
    "gem": [X, "xᵖ", (bars(power=True), "one channel"), "mean, ¹⁄ₚ", (vector(COLOURS[2]), "z")],
    "bp": [X, "x xᵀ", (matrix(), "all products"), SUM, (matrix(COLOURS[0]), "Σ x xᵀ"), "W", (vector(COLOURS[0]), "z")],
    "cbp-ts": [X, "sketch", (scattered(), "random bins, signs"), "FFT product", (vector(COLOURS[1]), "of one x"), SUM, (vector(COLOURS[0]), "z")],
    "cbp-rm": [X, "± signs", (product(), "⟨w₁, x⟩ ⟨w₂, x⟩"), SUM, (vector(COLOURS[0]), "z")],
    "lrbp": [X, "P, then W", (matrix(COLOURS[1], 3), "low rank"), "‖W₊ᵀx‖² − ‖W₋ᵀx‖²", (vector(COLOURS[1]), "of one x"), SUM, (vector(COLOURS[0]), "z")],
    "fbn": [X, "F", (matrix(COLOURS[1], 4), "factors"), "wᵀx + ‖Fx‖²", (vector(COLOURS[1]), "of one x"), SUM, (vector(COLOURS[0]), "z")],
    "hadamard": [X, "U, V", (product(), "Uᵀx ∘ Vᵀx"), "attention", (grid(heat=True), "glimpses"), SUM, (vector(COLOURS[0]), "z")],
    "mlb": [X, "attention", (grid(heat=True), "glimpses"), SUM, (product(), "tanh ∘ tanh"), "P", (vector(COLOURS[0]), "z")],
    "grassmann": [X, "SVD", (plane(), "subspace of the xs"), "⟨a, UUᵀ b⟩", (vector(COLOURS[0]), "z")],
    "grassmann-full": [X, "SVD", (plane(), "subspace of the xs"), "U Uᵀ", (matrix(COLOURS[0], symmetric=True), "projector")],
    "mpn-cov": [X, "x xᵀ − μμᵀ", (matrix(), "covariance"), "eigenvectors", (matrix(COLOURS[1], diagonal=True), "√λ"), "", (matrix(COLOURS[0], symmetric=True), "√C")],
    "isqrt-cov": [X, "x xᵀ − μμᵀ", (matrix(), "covariance"), "Newton–Schulz", (matrix(COLOURS[0], symmetric=True), "√C")],
    "vlad": [WORD, "x − c", (vector(COLOURS[2]), "residual"), "Σ by word", (by_word("vector"), "z, N × d")],
    "netvlad": [SOFT, "h (x − c)", (vector(COLOURS[2]), "soft residuals"), "Σ by word", (by_word("vector"), "z, N × d")],
    "fisher": [SOFT, "u = (x − μ)/σ", (by_word("moments"), "γu, γ(u² − 1)"), SUM, (by_word("moments"), "z, N × 2d")],
    "fishernet": [SOFT, "u = w∘(x + b)", (by_word("moments"), "w, b learned"), SUM, (by_word("moments"), "z, N × 2d")],
    "mfa-fv": [SOFT, "Λ Λᵀ + Ψ", (by_word("matrix"), "factor analysers"), "scores, Σ", (by_word("matrix"), "z, N × (1+F)d")],
    "mfafvnet": [SOFT, "Λ, Ψ learned", (by_word("matrix"), "factor analysers"), "scores, Σ", (by_word("matrix"), "z, N × (1+F)d")],
    "vlat": [WORD, "Vᵀ(x − μ)", (matrix(COLOURS[2], 4), "(x−μ)(x−μ)ᵀ − T̄"), "Σ by word", (by_word("matrix"), "z, N × p²/2")],
    "sta": [WORD, "neighbours", (neighbours(), "y(s) y(s+n)ᵀ"), "Σ by pair", (pairs_of_words(), "z, N² × p²")],
    "ista": [WORD, "own axes Vₖ", (neighbours(), "y(s) y(s+n)ᵀ − T̄"), "Σ by pair", (pairs_of_words(), "z, N² × p²")],
    "jcf": [SOFT, "A h, B h", (by_word("matrix", 4), "R projectors U, V"), "mixed by word", (product(), "Uᵀx ∘ Vᵀx"), SUM, (vector(COLOURS[0]), "z")],
    "jcf-pairs": [(grid(words=True), "last layer x"), "jcf", (vector(COLOURS[1]), "z₁"), "+", (grid(), "layer before, y"), "Σ y yᵀ", (matrix(symmetric=True), "z₂, some entries"), "W", (vector(COLOURS[0]), "z")],
}  # fmt: skip
"""Name → glyphs with their captions, and between them what is done."""


def picture(name: str) -> str:
    x, parts = 16.0, []
    for step in PICTURES[name]:
        if isinstance(step, str):
            width = max(GAP, 6.4 * len(step) + 14)
            y = TOP + BOX / 2
            parts.append(f'<path class="a" d="M{x:.1f} {y}h{width:.1f}m-6 -4l6 4l-6 4"/>')
            parts.append(f'<text class="s" x="{x + width / 2:.1f}" y="{y - 8}">{step}</text>')
            x += width + 14
        else:
            glyph, caption = step
            room = max(BOX, 6.2 * len(caption))
            parts.append(glyph(x + (room - BOX) / 2, TOP))
            parts.append(f'<text class="s" x="{x + room / 2:.1f}" y="{TOP + BOX + 30}">{caption}</text>')
            x += room + 14
    words = " → ".join(step if isinstance(step, str) else step[1] for step in PICTURES[name] if step)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x:.0f} {HEIGHT}" width="{x:.0f}" height="{HEIGHT}" '
        f'font-family="system-ui, -apple-system, Segoe UI, sans-serif" role="img" aria-label="{name}: {words}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def main(folder: Path = HERE) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        (folder / f"{name}.svg").write_text(picture(name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
