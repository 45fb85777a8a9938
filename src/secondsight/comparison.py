"""All poolings on the same frozen features with the same budget: one table, one plot, resumable."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from secondsight import files
from secondsight.errors import ConfigError, UnknownName
from secondsight.extras import require
from secondsight.model import ModelConfig
from secondsight.pooling import POOLINGS, family
from secondsight.train import Recipe, train
from secondsight.train.recipe import (
    DataSection,
    LossSection,
    OptimizerSection,
    ScheduleSection,
    TrainSection,
    ValidationSection,
)

RESULTS, TABLE, PLOT = "results.jsonl", "table.md", "plot.svg"

OURS = {"start": "average"}
"""JCF's options here: it starts where averaging is, so that what is seen is what it learns; the recipes start higher.
The paper's literal layer is shown as ``jcf-32-8 (literal)``.
"""


@dataclass(frozen=True)
class Entry:
    """One pooling in the comparison: a name for the table, the pooling's name, and what is set besides."""

    title: str
    pooling: str
    options: dict
    norm_exponent: float = 0.0


@dataclass(frozen=True)
class Budget:
    """What every pooling gets."""

    data: str
    backbone: str
    weights: str = "default"
    epochs: int = 3
    lr: float = 1e-3
    batch: tuple[int, int] = (16, 4)
    dim: int = 512
    reduce: int = 256
    fold: int = 0


@dataclass(frozen=True)
class Outcome:
    """A finished run: where it started, where it ended, what it costs."""

    title: str
    pooling: str
    seed: int
    untrained: dict[str, float]
    trained: dict[str, float]
    parameters: int
    gflops: float
    native: int
    dim: int
    seconds: float


def entries(names: Iterable[str]) -> list[Entry]:
    """What to compare, from names; a JCF is taken twice, as the paper writes it and with our start."""
    found = []
    for name in names:
        if family(name) not in POOLINGS:
            raise UnknownName("pooling", name, POOLINGS)
        if family(name) == "jcf":
            literal = {"scale": 1.0, "learn_scale": False} if name != "jcf" else {}
            found.append(Entry(f"{name} (literal)", name, literal, norm_exponent=1.0))
            found.append(Entry(name, name, OURS))
        else:
            found.append(Entry(name, name, {}))
    return found


def recipe(entry: Entry, budget: Budget, seed: int) -> Recipe:
    """The run of one pooling: the backbone frozen whole, its features cached, reduction and pooling learned."""
    p, k = budget.batch
    return Recipe(
        data=DataSection(path=budget.data, transform="resize"),
        model=ModelConfig(
            backbone=budget.backbone,
            weights=budget.weights,
            freeze="all",
            pooling=entry.pooling,
            dim=budget.dim,
            reduce=budget.reduce,
            norm_exponent=entry.norm_exponent,
            pooling_options=entry.options,
        ),
        loss=LossSection(name="proxy-anchor"),
        optimizer=OptimizerSection(lr=0.0, head_lr=budget.lr, proxy_lr=10 * budget.lr),
        schedule=ScheduleSection(warmup=0.5),
        train=TrainSection(epochs=budget.epochs, classes_per_batch=p, images_per_class=k, seed=seed, keep=1),
        validation=ValidationSection(fold=budget.fold, at_start=True, every=budget.epochs),
    )


def compare(
    chosen: Sequence[Entry], budget: Budget, out: str | Path, *, seeds: int = 1, say: Callable[[str], None] = print
) -> list[Outcome]:
    """Run what is not there yet, seed by seed, writing results as they come; then the table and the plot.

    A signal that stops a run, which keeps what it has, stops the comparison: ``KeyboardInterrupt``. The same call goes
    on from there.
    """
    if seeds < 1 or not chosen:
        raise ConfigError(f"a comparison needs at least one pooling and one seed, got {len(chosen)} and {seeds}")
    folder = Path(out)
    _same_budget(folder, budget)
    outcomes = read(folder)
    done = {(o.title, o.seed) for o in outcomes}
    todo = [(e, seed) for seed in range(seeds) for e in chosen if (e.title, seed) not in done]
    for number, (entry, seed) in enumerate(todo, 1):
        say(f"[{number}/{len(todo)}] {entry.title}, seed {seed}")
        outcome, asked = _run(entry, budget, seed, folder)
        if outcome is not None:
            outcomes.append(outcome)
            write(folder, outcomes, budget)
        if asked:
            raise KeyboardInterrupt
    write(folder, outcomes, budget)
    return outcomes


def _same_budget(folder: Path, budget: Budget) -> None:
    """A folder holds one comparison: figures under different budgets do not belong in one table."""
    path, mine = folder / "budget.json", json.loads(json.dumps(asdict(budget)))
    if path.exists() and (theirs := json.loads(path.read_text("utf-8"))) != mine:
        differ = ", ".join(f"{k}: {theirs.get(k)!r} there, {mine[k]!r} asked" for k in mine if theirs.get(k) != mine[k])
        raise ConfigError(f"{folder} holds a comparison under another budget ({differ}); choose another --out")
    files.write_text(path, json.dumps(mine, indent=1) + "\n")


def _run(entry: Entry, budget: Budget, seed: int, folder: Path) -> tuple[Outcome | None, bool]:
    """None where a signal stopped it, and whether one asked to stop, be it too late for this run."""
    where = folder / "runs" / f"{entry.title.replace(' ', '-').strip(')').replace('(', '')}-{seed}"
    start = time.perf_counter()
    result = train(recipe(entry, budget, seed), where, resume=where.exists(), quiet=True)
    if not result.complete:
        return None, True
    report = json.loads((where / "report.json").read_text("utf-8"))
    from secondsight.model import load

    model = load(result.directory / "best")
    size = model.size
    h, w = model.backbone.grid(size, size)
    reduction = 0 if model.reduction is None else 2 * h * w * model.reduction.in_dim * model.reduction.out_dim
    shutil.rmtree(where / "checkpoints", ignore_errors=True)  # best/ and the figures are what is left to look at
    history = report["history"]
    outcome = Outcome(
        title=entry.title,
        pooling=entry.pooling,
        seed=seed,
        untrained=_figures(history[0]) if history[0]["step"] == 0 else {},
        trained=_figures(history[-1]),
        parameters=model.parameters_after_backbone(),
        gflops=(reduction + model.pooling.flops(h * w)) / 1e9,
        native=getattr(model.pooling, "pooling", model.pooling).out_dim,
        dim=model.dim,
        seconds=round(time.perf_counter() - start, 1),
    )
    return outcome, result.asked


def _figures(row: dict) -> dict[str, float]:
    return {key: value for key, value in row.items() if key.startswith("recall@") or key == "map@r"}


def read(folder: Path) -> list[Outcome]:
    """What a comparison has found so far."""
    path = folder / RESULTS
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def write(folder: Path, outcomes: Sequence[Outcome], budget: Budget) -> None:
    """Results as JSON lines, a Markdown table, and the plot where matplotlib is there."""
    files.write_text(folder / RESULTS, "".join(json.dumps(asdict(o)) + "\n" for o in outcomes))
    files.write_text(folder / TABLE, markdown(outcomes, budget))


def summary(outcomes: Sequence[Outcome]) -> list[dict]:
    """One row a pooling, best first: mean and spread of Recall@1 over the seeds."""
    titles = list(dict.fromkeys(o.title for o in outcomes))
    rows = []
    for title in titles:
        mine = [o for o in outcomes if o.title == title]
        finals = [100 * o.trained["recall@1"] for o in mine]
        starts = [100 * o.untrained["recall@1"] for o in mine if o.untrained]
        rows.append(
            {
                "title": title,
                "recall": statistics.mean(finals),
                "spread": statistics.stdev(finals) if len(finals) > 1 else None,
                "untrained": statistics.mean(starts) if starts else None,
                "seeds": len(mine),
                **{key: getattr(mine[0], key) for key in ("parameters", "gflops", "native", "dim")},
            }
        )
    return sorted(rows, key=lambda row: -row["recall"])


def markdown(outcomes: Sequence[Outcome], budget: Budget) -> str:
    """The table, and a sentence that says under what budget it was made."""
    lines = [
        "| pooling | R@1 trained | R@1 untrained | parameters | GFLOPs | native size |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in summary(outcomes):
        spread = "" if row["spread"] is None else f" ± {row['spread']:.1f}"
        start = "–" if row["untrained"] is None else f"{row['untrained']:.1f}"
        lines.append(
            f"| {row['title']} | {row['recall']:.1f}{spread} | {start} | {row['parameters'] / 1e6:.1f}M "
            f"| {row['gflops']:.2f} | {row['native']:,} |"
        )
    seeds = sorted({row["seeds"] for row in summary(outcomes)})
    p, k = budget.batch
    lines.append(
        f"\n{budget.dim} numbers an image; {budget.backbone} frozen, channels reduced to {budget.reduce} for all but "
        f"average, max and gem; Proxy-Anchor, AdamW at {budget.lr:g}, batches of {p}×{k}, {budget.epochs} epochs, "
        f"{' or '.join(map(str, seeds))} seed(s); Recall@1 in % on held-out classes (fold {budget.fold}) after the "
        "last epoch, ± standard deviation over seeds."
    )
    return "\n".join(lines) + "\n"


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Recall@1 against parameters, GFLOPs and native size."""
    matplotlib = require("matplotlib", extra="plots", purpose="the plot")
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    rows = summary(outcomes)
    figure, axes = plt.subplots(1, 3, figsize=(15, 7.5), sharey=True, layout="constrained")
    for axis, key, title in zip(
        axes,
        ("parameters", "gflops", "native"),
        ("parameters after the backbone", "GFLOPs per image", "native size"),
        strict=True,
    ):
        for row in rows:
            colour = "#d64545" if row["title"].startswith("jcf") else "#3e6990"
            axis.errorbar(row[key], row["recall"], yerr=row["spread"], fmt="o", color=colour, capsize=2, markersize=5)
        axis.set_xscale("log")
        axis.set_xlabel(title)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        low, high = axis.get_xlim()
        axis.set_xlim(low / 1.2, high * (high / low) ** 0.3)  # room for names on the right
    axes[0].set_ylabel("Recall@1 on held-out classes, %")
    figure.draw_without_rendering()  # now the axes know where they are
    for axis, key in zip(axes, ("parameters", "gflops", "native"), strict=True):
        _name_points(axis, [(row["title"], row[key], row["recall"]) for row in rows])
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    plt.close(figure)


def _name_points(axis, points: Sequence[tuple[str, float, float]], *, size: float = 7.5) -> None:
    """A name beside every point, from the top down; one that would cover another goes lower, with a line to its
    point.
    """
    per_point = axis.figure.dpi / 72
    height, letter = 1.25 * size * per_point, 0.56 * size * per_point
    taken: list[tuple[float, float, float]] = []  # left, right, middle
    for name, x, y in sorted(points, key=lambda point: -point[2]):
        at_x, at_y = axis.transData.transform((x, y))
        left, middle = at_x + 8 * per_point, at_y
        right = left + letter * len(name)
        while any(
            left < its_right and its_left < right and abs(middle - m) < height for its_left, its_right, m in taken
        ):
            middle -= height / 4
        taken.append((left, right, middle))
        axis.annotate(
            name,
            (x, y),
            xytext=(8, (middle - at_y) / per_point),
            textcoords="offset points",
            fontsize=size,
            va="center",
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#999999", "shrinkA": 0, "shrinkB": 3},
        )
