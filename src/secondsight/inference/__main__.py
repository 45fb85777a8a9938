"""``python -m secondsight.inference model.onnx a.jpg b.png -o vectors.npy``: files to vectors where torch is not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from secondsight.errors import ConfigError, SecondsightError
from secondsight.inference.exported import load


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m secondsight.inference",
        description="Embed picture files with an exported model; needs numpy, Pillow and onnxruntime only.",
        epilog="example: python -m secondsight.inference birds.onnx photos/*.jpg -o vectors.npy",
    )
    parser.add_argument("model", help="what `secondsight export` wrote")
    parser.add_argument("files", nargs="+", help="pictures")
    parser.add_argument("-o", "--out", required=True, help="the .npy file to write: one row for each picture")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, help="cores to use; default: all")
    arguments = parser.parse_args()
    try:
        if not Path(arguments.out).parent.is_dir():  # said before the work, not after it
            raise ConfigError(f"{arguments.out}: the folder {Path(arguments.out).parent} does not exist; make it first")
        vectors = load(arguments.model, threads=arguments.threads).embed(
            arguments.files, batch_size=arguments.batch_size
        )
    except SecondsightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    np.save(arguments.out, vectors, allow_pickle=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
