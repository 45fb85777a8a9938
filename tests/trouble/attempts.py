"""One attempt at breaking a part of secondsight, for every part that takes something from outside.

A kind is prepared once, in an empty folder, and then tried with seed after seed. An attempt gives ``SOUND`` (it
worked), ``REFUSED`` (an error made for people) or raises: ``Different`` where a result is silently another one,
anything else where an error escaped.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import random
import shutil
import socket
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cached_photos import damage
from mutation import mutate
from PIL import Image

from secondsight.errors import SecondsightError

SOUND, REFUSED = "sound", "refused"


class Different(AssertionError):
    """A result that is not what it should be, and nobody said so."""


@dataclass(frozen=True)
class Kind:
    """``prepare(folder)`` gives the function that tries a seed. ``share``: of all mutations of ``make fuzz``."""

    prepare: Callable[[Path], Callable[[random.Random], str]]
    share: float
    what: str


def guarded(attempt: Callable[[random.Random], object], chance: random.Random) -> str:
    try:
        attempt(chance)
    except SecondsightError:
        return REFUSED
    return SOUND


# ---------------------------------------------------------------- pictures


def scenes() -> list[Image.Image]:
    """Two photographs of scikit-learn, small, and a drawing."""
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(pixels).resize((96, 64)) for pixels in load_sample_images().images]
    y, x = np.mgrid[0:40, 0:56]
    drawing = Image.fromarray(np.stack([4 * x, 6 * y, 255 * (x > y)], 2).astype(np.uint8))
    return [*photographs, drawing]


def encodings(image: Image.Image) -> Iterator[bytes]:
    grey = image.convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    alpha = image.convert("RGBA")
    alpha.putalpha(grey)
    exif = Image.Exif()
    exif[0x0112] = 6
    ways: list[tuple[Image.Image, str, dict]] = [
        (image, "JPEG", {}),
        (image, "JPEG", {"progressive": True, "exif": exif}),
        (grey, "JPEG", {"quality": 30}),
        (image.convert("CMYK"), "JPEG", {}),
        (image, "PNG", {}),
        (alpha, "PNG", {}),
        (deep, "PNG", {}),
        (image.convert("P"), "PNG", {"transparency": 3}),
        (image.convert("1"), "PNG", {}),
        (image, "GIF", {}),
        (image, "GIF", {"save_all": True, "append_images": [grey.convert("RGB")]}),
        (image, "WEBP", {}),
        (alpha, "WEBP", {"lossless": True}),
        (image, "TIFF", {}),
        (image, "TIFF", {"compression": "tiff_lzw"}),
        (image, "TIFF", {"compression": "jpeg"}),
        (grey.convert("F"), "TIFF", {}),
        (grey.convert("I"), "TIFF", {"compression": "tiff_adobe_deflate"}),
        (image, "BMP", {}),
        (image.convert("P"), "BMP", {}),
        (image, "PPM", {}),
        (image, "JPEG2000", {}),
        (image, "AVIF", {"speed": 10}),
        (alpha, "ICO", {"sizes": [(32, 32)]}),
    ]
    for picture, format, options in ways:
        out = io.BytesIO()
        with contextlib.suppress(OSError, KeyError):  # a Pillow built without that codec
            picture.save(out, format, **options)
            yield out.getvalue()
    with contextlib.suppress(ImportError):
        import pillow_heif

        out = io.BytesIO()
        pillow_heif.from_pillow(image).save(out, quality=50)
        yield out.getvalue()


def pictures(folder: Path) -> Callable[[random.Random], str]:
    from secondsight.data.loading.decode import decode

    seeds = [content for image in scenes() for content in encodings(image)]

    def attempt(chance: random.Random) -> None:
        pixels = decode(mutate(chance.choice(seeds), seeds, chance), target=chance.choice((None, 16, 32)))
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            raise Different(f"{pixels.shape} {pixels.dtype}")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- tables


def tables(folder: Path) -> Callable[[random.Random], str]:
    from secondsight import data

    for name in ("a/1.png", "a/2.png", "b/1.png", "b/zwei é.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    rows = [(f"{c}/{i}.png", c, "train" if c == "a" else "test", i) for c in "ab" for i in (1, 2, 1)]
    texts = []
    for delimiter in ",;\t":
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows([("path", "label", "split", "group"), *rows])
        texts.append(text.getvalue().encode())
    texts += [b"path,label\na/1.png,1\nb/1.png,10\n", '\ufeffpath,label\r\n"a/1.png",é\r\n'.encode()]
    kinds = {".csv": texts, ".tsv": texts}
    with contextlib.suppress(ImportError):
        import pyarrow
        from pyarrow import parquet

        columns = dict(zip(("path", "label", "split", "group"), map(list, zip(*rows, strict=True)), strict=True))
        written = []
        for compression in ("none", "snappy"):
            out = io.BytesIO()
            parquet.write_table(pyarrow.table(columns), out, compression=compression)
            written.append(out.getvalue())
        kinds[".parquet"] = written

    def attempt(chance: random.Random) -> None:
        suffix = chance.choice(sorted(kinds))
        file = folder / f"table{suffix}"
        file.write_bytes(mutate(chance.choice(kinds[suffix]), kinds[suffix], chance, most=chance.choice((1, 1, 3))))
        images = data.open(file, check=chance.random() < 0.5)
        if len(images) and images.labels is not None and len(images.labels) != len(images.paths):
            raise Different("labels")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- archives


def archives(folder: Path) -> Callable[[random.Random], str]:
    from secondsight.data.fetch.archive import unpack

    content = {"photos/a.png": bytes(300), "photos/b/c.png": b"x" * 700, "notes.txt": b"hello\n" * 9}
    seeds = []
    for mode in ("w", "w:gz", "w:xz", "w:bz2"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as packed:  # pyright: ignore[reportCallIssue, reportArgumentType]
            for name, data in content.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                packed.addfile(info, io.BytesIO(data))
            link = tarfile.TarInfo("photos/link.png")
            link.type, link.linkname = tarfile.SYMTYPE, "a.png"
            packed.addfile(link)
        seeds.append((".tar", out.getvalue()))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as packed:
            for name, data in content.items():
                packed.writestr(name, data)
        seeds.append((".zip", out.getvalue()))
    others = [data for _, data in seeds] + [b"../" * 40, b"/etc/passwd\0", b"C:\\x"]
    outside = folder / "outside"
    outside.mkdir()

    def attempt(chance: random.Random) -> None:
        suffix, data = chance.choice(seeds)
        into = outside / "into"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        archive = folder / f"archive{suffix}"
        archive.write_bytes(mutate(data, others, chance, most=4))
        try:
            unpack(archive, into)
        finally:
            if [path.name for path in outside.iterdir()] != ["into"]:
                raise Different(f"it wrote outside: {sorted(outside.iterdir())}")
            if links := [path for path in into.rglob("*") if path.is_symlink()]:
                raise Different(f"it made links: {links}")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- models


def models(folder: Path) -> Callable[[random.Random], str]:
    """Accidents to a model directory: it is refused, or it gives the same embeddings as before, bit for bit."""
    import torch

    import train_tiny  # brings a backbone of two layers  # noqa: F401
    from secondsight import Embedder, load
    from secondsight.model import Origin

    torch.set_num_threads(1)
    model = Embedder.build(backbone="tiny", weights="random", pooling="jcf-4-2", dim=24, reduce=16, size=16).eval()
    model.origin = Origin("photos", ("a", "b"), ("c", "d"))
    model.save(folder / "whole")
    names = ("config.toml", "model.safetensors", "origin.json")
    contents = {name: (folder / "whole" / name).read_bytes() for name in names}
    images = torch.arange(2 * 3 * 16 * 16, dtype=torch.uint8).reshape(2, 3, 16, 16)
    with torch.no_grad():
        right = model(images)

    def attempt(chance: random.Random) -> None:
        shutil.rmtree(folder / "model", ignore_errors=True)
        shutil.copytree(folder / "whole", folder / "model")
        name = chance.choice(("config.toml", "config.toml", "model.safetensors", "model.safetensors", "origin.json"))
        if name == "config.toml" and chance.random() < 0.7:
            changed = _another_value(contents[name].decode(), chance)
        else:
            changed = mutate(contents[name], list(contents.values()), chance, most=2)
        (folder / "model" / name).write_bytes(changed)
        again = load(folder / "model")
        with torch.no_grad():
            if not torch.equal(again(images), right):
                raise Different(f"{name}: other embeddings")
        if again.origin != model.origin:
            raise Different(f"{name}: another origin, {again.origin}")

    return lambda chance: guarded(attempt, chance)


WORDS = (
    *("0", "-1", "-3", "1000000000", "99999999999999999999999", "1e300", "nan", "inf", "true", '""', '"x"', "[]", "{}"),
    *('"jcf-100000-100000"', '"jcf-1-1"', '"../../etc"', "[" * 200 + "]" * 200, "{ width = 1000000000 }", '"\\u0000"'),
    *("1979-05-27", "[1, 2]", '"vgg16"', '"average"', "2", "16", "1"),
)


def _another_value(text: str, chance: random.Random) -> bytes:
    """One key gets a value that someone might try, or there is a key more, or less."""
    lines = text.splitlines()
    at = chance.randrange(len(lines))
    key, equals, _ = lines[at].partition("=")
    if equals and chance.random() < 0.8:
        lines[at] = f"{key}= {chance.choice(WORDS)}"
    elif chance.random() < 0.5:
        del lines[at]
    else:
        deep = "a." * chance.choice((0, 3, 60, 5000))
        lines.insert(at, f"{deep}{chance.choice(('keep', 'x', 'mirror'))} = {chance.choice(WORDS)}")
    return "\n".join(lines).encode()


# ---------------------------------------------------------------- vectors


def vectors(folder: Path) -> Callable[[random.Random], str]:
    """Saved embeddings and labels, as ``evaluate`` takes them."""
    from secondsight.evaluate import Evaluation, Items

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((12, 4)).astype(kind) for kind in ("f4", "f8", "f2", ">f4", "i1", "u2")]
    arrays += [np.zeros((0, 4), "f4"), np.float32(3), rng.standard_normal((3, 2, 2)), np.array([["a"]])]
    numbers = np.repeat(np.arange(6), 2)
    labels: list[tuple[str, bytes]] = [(".txt", b"".join(b"%d\n" % i for i in numbers)), (".npy", _npy(numbers))]
    labels += [(".npy", _npy(numbers.astype("U3"))), (".npy", _npy(numbers.astype(float))), (".npy", _npy(np.int64(1)))]
    seeds = [_npy(array) for array in arrays]

    def attempt(chance: random.Random) -> None:
        suffix, names = chance.choice(labels)
        found, file = chance.choice(seeds), folder / f"labels{suffix}"
        which = chance.random()
        (folder / "v.npy").write_bytes(mutate(found, seeds, chance, most=2) if which < 0.7 else found)
        file.write_bytes(mutate(names, [n for _, n in labels], chance, most=2) if which > 0.5 else names)
        items = Items.of_files(folder / "v.npy", file, None)
        Evaluation.of(items, bootstrap=0, progress=lambda share: None).to_json()

    return lambda chance: guarded(attempt, chance)


def _npy(array: np.ndarray | np.generic) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


# ---------------------------------------------------------------- caches


def caches(folder: Path) -> Callable[[random.Random], str]:
    """Damage to the files of the feature cache: the activations are the right ones, or store.json is named."""
    from cached_photos import features, make_photos

    photos = make_photos(folder)
    photos.paths[5].write_bytes(b"\x89PNG broken")  # so that there is a failed.json, too
    os.utime(photos.paths[5], (1e9, 1e9))
    first = features(photos, folder / "whole")
    good = np.flatnonzero(first.rows >= 0)
    right = first[good]

    def attempt(chance: random.Random) -> None:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        shutil.copytree(folder / "whole", folder / "cache")
        what = [damage(folder / "cache", chance) for _ in range(chance.randint(1, 3))]
        again = features(photos, folder / "cache")
        if [failure.index for failure in again.failures] != [5] or not np.array_equal(again[good], right):
            raise Different(f"{what}")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- embeddings


def embeddings(folder: Path) -> Callable[[random.Random], str]:
    """Damage to a directory of embeddings, finished or not: the same command ends with the right ones, or refuses."""
    import torch

    import train_tiny
    from secondsight import Embedder, data
    from secondsight.embed.directory import embed_to, finish

    torch.set_num_threads(1)
    images = data.open(train_tiny.write_digits(folder / "digits", classes=3, images=4))
    model = Embedder.build(backbone="tiny", weights="random", pooling="average", dim=8, reduce=0, size=16).eval()
    options = {"block": 4, "batch_size": 4}

    def work(place: Path) -> None:
        embed_to(place, model, images, workers=0, **options)
        finish(place, images, **options)

    embed_to(folder / "unfinished", model, images, workers=0, **options)
    work(folder / "finished")
    names = ("vectors.npy", "items.csv", "embedding.json")
    right = {name: (folder / "finished" / name).read_bytes() for name in names}

    def attempt(chance: random.Random) -> None:
        shutil.rmtree(folder / "out", ignore_errors=True)
        shutil.copytree(folder / chance.choice(("unfinished", "finished")), folder / "out")
        what = [damage(folder / "out", chance) for _ in range(chance.randint(1, 2))]
        with contextlib.redirect_stderr(io.StringIO()):
            work(folder / "out")
        if wrong := [name for name in names if (folder / "out" / name).read_bytes() != right[name]]:
            raise Different(f"{what}: {wrong}")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- indexes


def indexes(folder: Path) -> Callable[[random.Random], str]:
    """Damage to the files of an index: it is refused, ``check`` finds it, or everything is as it was.

    SQLite keeps no checksums: of what the catalogue says about an item (path, label) only the ids are compared.
    """
    from secondsight import index

    made = index.create(folder / "whole", dim=8)
    made.add_vectors(np.random.default_rng(0).standard_normal((30, 8)), labels=list("abcdef") * 5)
    made.remove([3, 4])
    made.add_vectors(np.random.default_rng(1).standard_normal((20, 8)), labels=list("ghijk") * 4)
    made.close()

    def content(place: Path) -> tuple[list[int], bytes, list[int]]:
        found = index.open(place)
        try:
            ids = found.ids()
            [item.label for item in found.items()]
            hits = found.search(np.ones(8), 5)
            vectors = found.vectors(ids.tolist()).tobytes()
            problems = found.check().problems
            if problems:
                raise SecondsightError(problems[0])
            return ids.tolist(), vectors, hits.ids[0].tolist()
        finally:
            found.close()

    right = content(folder / "whole")

    def attempt(chance: random.Random) -> None:
        shutil.rmtree(folder / "index", ignore_errors=True)
        shutil.copytree(folder / "whole", folder / "index")
        what = [damage(folder / "index", chance) for _ in range(chance.randint(1, 2))]
        if content(folder / "index") != right:
            raise Different(f"{what}")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- servers


class Liar(threading.Thread):
    """A server that answers every request with the same bytes, whatever was asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer = b""
        self.start()

    def run(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.recv(1 << 16)
                connection.sendall(self.answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)


def servers(folder: Path) -> Callable[[random.Random], str]:
    from secondsight.data.fetch.download import fetch
    from secondsight.data.readers.registry import Archive

    liar, body = Liar(), b"0123456789" * 30
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 300\r\nETag: "a"\r\nContent-Type: application/zip\r\n\r\n'
    seeds = [
        head + body,
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 100-299/300\r\nContent-Length: 200\r\n\r\n" + body[100:],
        b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/x\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
        b"HTTP/1.1 503 Busy\x1b[2J\r\nRetry-After: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n" + body + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 416 Range\r\nContent-Range: bytes */300\r\n\r\n",
    ]
    paths = [b"/file.zip", b"/a b/\xc3\xa9.zip", b"/%00", b"/x?y=[z]", b":99999/x", b"@host/x", b"[::1/x"]

    def attempt(chance: random.Random) -> None:
        for name in ("file", "file.part", "file.part.json"):
            (folder / name).unlink(missing_ok=True)
        if chance.random() < 0.3:
            (folder / "file.part").write_bytes(body[: chance.randrange(300)])
            (folder / "file.part.json").write_bytes(
                mutate(b'{"url": "http://x", "validator": "a"}', [], chance, most=1)
            )
        liar.answer = mutate(chance.choice(seeds), seeds, chance, most=3)
        path = chance.choice(paths) if chance.random() < 0.8 else mutate(chance.choice(paths), paths, chance, most=1)
        url = f"http://127.0.0.1:{liar.port}" + path.decode("utf-8", "surrogateescape")
        if chance.random() < 0.1:
            url = mutate(url.encode("utf-8", "surrogateescape"), paths, chance, most=1).decode("utf-8", "replace")
            if f"//127.0.0.1:{liar.port}/" not in url:  # never talk to anyone else
                from secondsight.data.fetch.addresses import address

                address(url)
                return
        fetch(url, folder / "file", Archive("file", size=300), tries=1, pause=0.0, timeout=3)
        if (folder / "file").stat().st_size != 300:
            raise Different("another file was taken for the right one")

    return lambda chance: guarded(attempt, chance)


# ---------------------------------------------------------------- commands


VALUES = (
    *(
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "1e400",
        "nan",
        "-inf",
        "abc",
        "",
        " ",
        "[/red]",
        "[bold]",
        "\x1b[2J",
        "é☂",
    ),
    *("/dev/null", "/dev/full", "/nonexistent/x", "/proc/1/mem", "..", "~", "a" * 300, "\udce9", "%s", "None", "true"),
    *("cub200", "cub200:", "nope:x", "folder:.", "cuda:99", "jcf", "jcf-0-0", "jcf-99999999-2", "--", "-"),
)


def commands(folder: Path) -> Callable[[random.Random], str]:
    """Commands that are quick because their input is small, or wrong."""
    for name in ("\x1b[31mred", "[/b]", "a", "b"):
        for i in range(2):
            (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (i, 9, 9)).save(folder / "photos" / name / f"{i}.png")
    np.save(folder / "v.npy", np.eye(6, 4, dtype=np.float32))
    np.save(folder / "empty.npy", np.zeros((0, 4), np.float32))
    (folder / "cut.npy").write_bytes((folder / "v.npy").read_bytes()[:30])
    (folder / "zero.npy").write_bytes(b"")
    (folder / "labels.txt").write_text("a\na\nb\nb\nc\nc\n")
    (folder / "bad.csv").write_bytes(b"path,label\n\0,1\n")
    (folder / "file").write_text("a file")
    here = folder / "here"
    here.mkdir()
    os.environ["HOME"] = str(here)  # what a command reads or writes by chance stays in this folder
    files = [str(folder / name) for name in ("photos", "v.npy", "empty.npy", "cut.npy", "zero.npy", "labels.txt")]
    files += [str(folder / name) for name in ("bad.csv", "file", "none")]
    starts = [
        *(("data", "verify"), ("data", "stats"), ("data", "cache"), ("data", "list"), ("data", "get"), ("data",), ()),
        *(("evaluate",), ("embed",), ("index",), ("update",), ("search",), ("duplicates",), ("info",), ("check",)),
        *(("explain",), ("codewords",), ("train", "--dry-run"), ("compare",), ("compress",)),
        *(("poolings",), ("backbones",), ("losses",), ("recipes",)),
    ]
    options = [
        *("--json", "--decode", "--duplicates", "--split", "--sample", "--directory", "--keep", "--root", "--from"),
        *("--labels", "--out", "--seed", "--bootstrap", "--fold", "--size", "--device", "--weights", "--channels"),
        *("--missing", "--help", "--version", "--metric", "--k", "--min-images", "--batch-size", "--workers"),
    ]

    def attempt(chance: random.Random) -> str:
        words = list(chance.choice(starts))
        if chance.random() < 0.1:
            words = ["data", "stats", files[0]]
        for _ in range(chance.choice((0, 1, 2, 2, 3, 4))):
            pick = chance.random()
            words.append(chance.choice(files if pick < 0.35 else options if pick < 0.7 else VALUES))
        if "get" in words:
            words += ["--url", "http://[::1"]  # nothing is ever downloaded from here
        with contextlib.chdir(here):
            out, err, code = run_command(words)
        if code not in (0, 1, 2) or "Traceback" in err or "Aborted" in err + out or "fault of secondsight" in err:
            raise RuntimeError(f"{words!r}: exit {code}: {err[-600:]}")
        if "\x1b" in out.replace("\\u001b", "") + err:
            raise Different(f"{words!r}: an escape reached the terminal")
        return SOUND if code == 0 else REFUSED

    return attempt


def run_command(words: list[str]) -> tuple[str, str, int]:
    """(standard output, standard error, exit code) of a command, in this process."""
    from secondsight.cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    before, code = sys.argv, 0
    sys.argv = ["secondsight", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 99
    finally:
        sys.argv = before
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]  # pyright: ignore
    return texts[0], texts[1], code


KINDS = {
    "pictures": Kind(pictures, 0.43, "24 encodings of 3 pictures"),
    "tables": Kind(tables, 0.16, "CSV, TSV and Parquet"),
    "archives": Kind(archives, 0.12, "zip and tar, seven ways of packing"),
    "models": Kind(models, 0.06, "configuration, weights and origin of a model directory"),
    "vectors": Kind(vectors, 0.02, "saved embeddings and labels"),
    "caches": Kind(caches, 0.02, "files of the feature cache"),
    "embeddings": Kind(embeddings, 0.02, "a directory of embeddings, finished or not"),
    "indexes": Kind(indexes, 0.03, "files of an index"),
    "servers": Kind(servers, 0.05, "answers of a server, and addresses"),
    "commands": Kind(commands, 0.03, "command lines"),
}
