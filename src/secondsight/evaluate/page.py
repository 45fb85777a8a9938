"""``report.html``: one file without scripts and without requests, that says how good an embedding is and shows why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from importlib import resources

from secondsight.evaluate import drawing
from secondsight.evaluate.drawing import breakable, percent
from secondsight.evaluate.examples import Examples
from secondsight.evaluate.figures import title as figure_title
from secondsight.evaluate.gallery import Picture, rows
from secondsight.evaluate.report import Label, Report
from secondsight.evaluate.survey import Survey

AXIS = {"cosine": "cosine similarity", "dot": "dot product", "euclidean": "minus the distance"}


def page(
    report: Report,
    survey: Survey,
    *,
    title: str,
    examples: Examples = Examples((), ()),
    confusions: Mapping[Label, tuple[Label, int]] | None = None,
    picture: Picture = lambda index: None,
    name: Callable[[int], str] = lambda index: f"item {index}",
    facts: Mapping[str, str] | None = None,
    warnings: tuple[str, ...] = (),
) -> str:
    """The whole page.

    Args:
        report, survey: What ``retrieval`` and ``survey`` found.
        title: Usually the model and the data.
        examples, confusions: From ``instructive`` and ``confusions``.
        picture: The JPEG of an item, or None; it is put into the page itself.
        name: What to call an item.
        facts: For the last lines: model, data, transform, version.
        warnings: What the reader should know before believing a number.
    """
    lost = survey.collapsed and report.recall[min(report.recall)] <= report.chance
    notes = warnings + (_COLLAPSED,) * lost
    body = [
        f"<header><h1>{escape(title)}</h1><p>{escape(_sentence(report))}</p></header>",
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        _tiles(report),
        '<div class="charts">',
        _curve(report),
        _histogram(report, survey),
        "</div>",
        _classes(report, confusions or {}),
        rows("Confident errors", _ERRORS, examples.errors, picture, name),
        rows("Hard cases, found all the same", _RESCUED, examples.rescued, picture, name),
        _HOW_TO_READ,
        f"<footer>{'<br>'.join(f'{escape(k)}: {escape(v)}' for k, v in (facts or {}).items())}</footer>",
    ]
    style = resources.files("secondsight.evaluate").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _sentence(report: Report) -> str:
    k = min(report.recall)
    first = "the nearest image shows" if k == 1 else f"one of the {k} nearest images shows"
    return (
        f"For {round(100 * report.recall[k])} of 100 queries {first} the same class. {report.queries:,} queries "
        f"against {report.gallery:,} items of {report.classes:,} classes."
    )


def _tiles(report: Report) -> str:
    made = []
    for i, (name, value) in enumerate(report.figures.items()):
        interval = report.intervals.get(name)
        between = "" if interval is None else f"{percent(interval.low)} – {percent(interval.high)}"
        made.append(
            f'<div class="tile{" lead" if i == 0 else ""}"><div class="name">{escape(figure_title(name))}</div>'
            f'<div class="number">{percent(value)}<small> %</small></div><div class="between">{between}</div></div>'
        )
    fine = []
    if report.intervals:
        fine.append(f"Below each figure: its {100 * report.level:g} % interval (bootstrap over {report.resample}).")
    if report.without_positives:
        fine.append(f"{report.without_positives:,} queries have no other item of their class and are left out.")
    if report.empty_ks:
        fine.append(f"K = {', '.join(map(str, report.empty_ks))} is the whole gallery: any embedding has 100 % there.")
    return f'<div class="tiles">{"".join(made)}</div><p class="fine">{" ".join(fine)}</p>'


def _curve(report: Report) -> str:
    found = report.first[report.first > 0]
    # What a random order would find first: the share of positives, averaged over the classes' queries.
    chance = report.chance
    marked = {k: (value, report.intervals.get(f"recall@{k}")) for k, value in report.recall.items()}
    return _card(
        "Recall at K",
        "Share of queries with an item of their class among the K nearest. The bars behind the dots are intervals.",
        '<div class="key"><span class="positive">this embedding</span><span class="chance">chance</span></div>'
        + drawing.recall_curve(found, gallery=report.gallery, marked=marked, chance=chance),
    )


def _histogram(report: Report, survey: Survey) -> str:
    seen = (
        f"{len(survey.queries):,} queries drawn at random, each with the whole gallery"
        if survey.sampled
        else "all pairs of a query and a gallery item"
    )
    return _card(
        "Similarity of pairs",
        f"The less the two overlap, the easier the search. From {seen}; each area is 100 % of its pairs.",
        '<div class="key"><span class="positive">same class</span><span class="negative">different classes</span></div>'
        + drawing.similarity_histogram(survey.edges, survey.positive, survey.negative, what=AXIS[report.metric]),
    )


def _classes(report: Report, confusions: Mapping[Label, tuple[Label, int]]) -> str:
    k = min(report.recall)
    lines = []
    for label, one in report.worst(10):
        instead = confusions.get(label)
        mistaken = "" if instead is None else f"{breakable(str(instead[0]))} <small>({instead[1]}×)</small>"
        meter = f'<span class="meter"><i style="width:{100 * one.recall[k]:.1f}%"></i></span>'
        lines.append(
            f"<tr><td>{breakable(str(label))}</td><td>{one.queries:,}</td><td>{percent(one.recall[k])}{meter}</td>"
            f'<td>{percent(one.map_at_r)}</td><td class="text">{mistaken}</td></tr>'
        )
    table = (
        f'<div class="scroll"><table><thead><tr><th>class</th><th>queries</th><th>Recall@{k} %</th><th>MAP@R %</th>'
        f'<th class="text">most often found instead</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )
    spread = drawing.class_histogram(
        [one.recall[k] for one in report.per_class.values()], what=f"Recall@{k} of a class, in %"
    )
    return (
        "<h2>Classes</h2><p class='lede'>An average hides who pays for it.</p><div class='charts classes'>"
        f"{_card('The weakest', f'Lowest Recall@{k} first.', table)}"
        f"{_card('All of them', 'Number of classes in each tenth.', spread)}</div>"
    )


def _card(title: str, lede: str, content: str) -> str:
    return f'<section class="card"><h2>{escape(title)}</h2><p class="lede">{escape(lede)}</p>{content}</section>'


_COLLAPSED = (
    "The embedding has collapsed: every pair of items is equally similar, so nothing can be told apart. Ties count "
    "against the query, which is why the figures are near zero."
)
_ERRORS = (
    "The nearest item is wrong, and the best right one is far behind it. Look here for mislabelled images, "
    "near-duplicates in two classes, and backgrounds that the embedding took for the object."
)
_RESCUED = (
    "Unlike most of their class and close to another one, and yet an item of the right class came first: what the "
    "embedding has understood."
)
_HOW_TO_READ = """<details><summary>How to read these figures</summary><dl>
<dt>Recall@K</dt><dd>1 for a query if any of its K nearest items is of its class, else 0; averaged over queries.</dd>
<dt>R-precision, MAP@R</dt><dd>With R items of the query's class in the gallery: the share of right ones among the R
nearest; MAP@R also asks that they come first. Unlike Recall@1 they see whether a class holds together.</dd>
<dt>MRR</dt><dd>Mean of 1 / rank of the first right item.</dd>
<dt>NMI</dt><dd>Agreement of k-means clusters with the classes (only where it was asked for).</dd>
<dt>The rules</dt><dd>A query never finds itself: it is left out by its index, so that a duplicate counts like any other
item. Ties count against the query. Queries without another item of their class are left out and counted. All ranks are
exact.</dd>
<dt>Intervals</dt><dd>Percentile bootstrap with the gallery as it is. They say how much a figure owes to the choice of
queries (or of classes); they do not cover the chance in training: train with several seeds for that.</dd>
</dl></details>"""
