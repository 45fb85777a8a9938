"""The demo's settings, chosen on emoji that the demo never shows; averaging and JCF are trained the same way.

    python benchmarks/demo_settings.py                                               # the demo's own settings
    python benchmarks/demo_settings.py --try train.epochs=10 "optimizer.head_lr=5e-3 train.epochs=10"
    python benchmarks/demo_settings.py --keep DIR        # stopped and started again, it goes on

Of every draw 100 emoji teach and 100 others judge, as in ``secondsight demo``, whose own 200 are in no draw. Averaging
gets the same features, loss and batches, and three learning rates; its best is shown.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from measure import console, table
from secondsight import demo, files
from secondsight.memory import keep_freed
from secondsight.train import train
from secondsight.train.run_directory import read_metrics

FIGURES = ("recall@1", "map@r")
AVERAGE = ["model.pooling=average", "model.pooling_options={}", "optimizer.end_lr=none"]
RATES = ["optimizer.head_lr=5e-4", "optimizer.head_lr=2e-3", "optimizer.head_lr=8e-3"]
VALIDATE = ["validation.share=0.5", "validation.at_start=true", "validation.patience=none"]


def curve(words: list[str], draw: int, place: Path) -> np.ndarray:
    """(epochs + 1, 2): R@1 and MAP@R in per cent on the emoji that judge, before training and after every epoch."""
    kept = place / f"{' '.join(words).replace('/', ' ')}, draw {draw}.npy"
    if not kept.is_file():
        subject = demo.emoji(place, skip=200 * (1 + draw), settings=[*words, *VALIDATE])
        assert subject.recipe is not None
        out = Path(tempfile.mkdtemp(dir=place))
        if train(subject.recipe, out, quiet=True).asked:
            raise SystemExit(1)  # stopped by hand: half a run is none
        rows = [row for row in read_metrics(out / "metrics.jsonl") if row["kind"] == "validation"]
        shutil.rmtree(out)
        with files.replacing(kept) as temporary, temporary.open("wb") as handle:
            np.save(handle, np.array([[100 * row[figure] for figure in FIGURES] for row in rows]))
    return np.load(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--try", dest="tries", nargs="+", default=[""], metavar="'KEY=VALUE …'", help="changed settings"
    )
    parser.add_argument("--draws", type=int, default=2, help="times 200 emoji that are drawn")
    parser.add_argument("--without-average", action="store_true")
    parser.add_argument("--keep", type=Path, help="where finished runs and features are kept")
    options = parser.parse_args()
    keep_freed()
    shown = table(
        f"Emoji that nothing was trained on, mean of {options.draws} draws: R@1 / MAP@R",
        *("settings", "before", "after", "best epoch"),
    )
    rows = {f"jcf-32-8 {text}": text.split() for text in options.tries}
    if not options.without_average:
        rows |= {f"average {rate}": [*AVERAGE, rate] for rate in RATES}
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, words in rows.items():
            curves = np.mean([curve(words, draw, place) for draw in range(options.draws)], axis=0)
            best = int(curves[:, 0].argmax())
            cells = [f"{r1:.1f} / {map_r:.1f}" for r1, map_r in (curves[0], curves[-1])]
            shown.add_row(name, *cells, str(best))
            console.print(f"{name}: {', '.join(f'{r1:.1f}' for r1, _ in curves)}", highlight=False)  # it takes a while
    console.print(shown)


if __name__ == "__main__":
    main()
