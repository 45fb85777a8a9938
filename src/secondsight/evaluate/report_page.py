"""``report.html``: one file without scripts and without requests, that says how good an embedding is and shows why."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

from secondsight.evaluate import charts
from secondsight.evaluate.examples import Examples
from secondsight.evaluate.figures import title as figure_title
from secondsight.evaluate.report import Label, Report
from secondsight.evaluate.survey import EmbeddingSurvey
from secondsight.templates import environment

AXIS = {"cosine": "cosine similarity", "dot": "dot product", "euclidean": "minus the distance"}

FILTERS = {
    "base64": lambda content: base64.b64encode(content).decode("ascii"),
    "breakable": charts.breakable,
    "count": "{:,}".format,
    "figure_title": figure_title,
    "percent": charts.percent,
}


def page(
    report: Report,
    survey: EmbeddingSurvey,
    *,
    title: str,
    examples: Examples = Examples((), ()),
    confusions: Mapping[Label, tuple[Label, int]] | None = None,
    picture: Callable[[int], bytes | None] = lambda index: None,
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
    k = min(report.recall)
    marked = {at: (value, report.intervals.get(f"recall@{at}")) for at, value in report.recall.items()}
    found = report.first[report.first > 0]
    recalls = [one.recall[k] for one in report.per_class.values()]
    return (
        environment("secondsight.evaluate", FILTERS)
        .get_template("report.html")
        .render(
            report=report,
            survey=survey,
            title=title,
            examples=examples,
            confusions=confusions or {},
            picture=picture,
            name=name,
            facts=facts or {},
            warnings=warnings,
            k=k,
            collapsed=survey.collapsed and report.recall[k] <= report.chance,
            recall_curve=charts.recall_curve(found, gallery=report.gallery, marked=marked, chance=report.chance),
            similarity_histogram=charts.similarity_histogram(
                survey.edges, survey.positive, survey.negative, what=AXIS[report.metric]
            ),
            class_histogram=charts.class_histogram(recalls, what=f"Recall@{k} of a class, in %"),
        )
    )
