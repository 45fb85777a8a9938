"""``secondsight data get``: from a name to a folder that opens, or to an error and nothing changed."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from secondsight.data.fetch.addresses import address
from secondsight.data.fetch.archive import unpack
from secondsight.data.fetch.download import check, fetch
from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import require_path
from secondsight.data.readers.registry import DATASETS, Archive, Dataset
from secondsight.data.readers.spec import data_root, read
from secondsight.errors import DataError, require_known
from secondsight.files import check_writable, replacing_directory


def get(
    name: str | Dataset,
    *,
    root: Path | None = None,
    urls: Sequence[str] = (),
    files: Sequence[Path] = (),
    checksum: bool = True,
    force: bool = False,
    keep: bool = False,
    tries: int = 6,
    pause: float = 1.0,
) -> ImageSet:
    """Download or unpack a dataset into ``root/name`` and open it; a dataset that is there and whole is left alone.

    Args:
        name: a name of ``DATASETS``.
        root: the folder that holds datasets; by default ``$SECONDSIGHT_DATA`` or ``data``.
        urls: mirrors to use instead of the official addresses, one per archive.
        files: archives that you already have, instead of any address.
        checksum: whether an archive that is known must have its known checksum. Counts are checked in any case.
        force: replace what is there.
        keep: keep the downloaded archives in ``root/.downloads``.
        tries, pause: patience with the network, see ``fetch``.
    """
    dataset = name if isinstance(name, Dataset) else _named(name)
    root = Path(root) if root is not None else data_root()
    target = root / dataset.name
    if target.exists() and not force:
        return _present(dataset, target)
    sources = _sources(dataset, [address(url) for url in urls], files)
    check_writable(root)
    downloads = root / ".downloads"
    with replacing_directory(target, one_sync=True) as fresh:
        fetched: list[Path] = []
        for archive, places in sources:
            known = archive if checksum else replace(archive, size=None, checksums=())
            file = _obtain(known, places, downloads, tries=tries, pause=pause)
            unpack(file, fresh)
            fetched += [file] if file.parent == downloads else []
        images = _opened(dataset, fresh)
    if not keep:
        for file in fetched:
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            downloads.rmdir()
    return replace(images, root=target / images.root.relative_to(fresh))


def _named(name: str) -> Dataset:
    downloadable = {n for n, d in DATASETS.items() if d.archives}
    return DATASETS[require_known("dataset to download", name, downloadable)]


def _present(dataset: Dataset, target: Path) -> ImageSet:
    try:
        images = read(dataset, target)
        for part, want in dataset.parts.items():
            if len(images.part(part)) != want.images:
                raise DataError(f"{target}: the {part} part is not here")
    except DataError as error:
        raise DataError(f"{error}. Move {target} away, or pass --force to replace it") from error
    return images


def _sources(
    dataset: Dataset, urls: Sequence[str], files: Sequence[Path]
) -> list[tuple[Archive, Sequence[str | Path]]]:
    """Each archive with the places to take it from."""
    if urls and files:
        raise DataError("--url and --from cannot be used together: the first downloads, the second does not")
    if files:
        return [(_known(dataset, Path(f).name), [require_path(Path(f).expanduser())]) for f in files]
    if urls:
        return [(_known(dataset, _file_name(url)), [url]) for url in urls]
    if not all(archive.urls for archive in dataset.archives):
        lines = "\n  ".join(dataset.mirrors)
        raise DataError(
            f"{dataset.name}: the official link is {dataset.link} ({dataset.homepage}). Others report that these work; "
            f"their content is checked on arrival:\n  {lines}"
        )
    return [(archive, archive.urls) for archive in dataset.archives]


def _known(dataset: Dataset, name: str) -> Archive:
    """What is known of a file by its name; a dataset in one archive is known whatever the file is called."""
    for archive in dataset.archives:
        if name == archive.name or len(dataset.archives) == 1:
            return replace(archive, name=name)
    return Archive(name)


def _file_name(url: str) -> str:
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    name = path.rstrip("/").rsplit("/", 1)[-1].lstrip(".")
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-100:] or "download"


def _obtain(archive: Archive, places: Sequence[str | Path], downloads: Path, *, tries: int, pause: float) -> Path:
    """The archive from the first place that has it."""
    failures = []
    for place in places:
        if isinstance(place, Path):
            check(place, archive)
            return place
        target = downloads / archive.name
        try:
            if target.exists() and archive.checksums:  # a whole download whose unpacking was interrupted
                check(target, archive)
                return target
        except DataError:
            target.unlink()
        try:
            return fetch(place, target, archive, tries=tries, pause=pause)
        except DataError as error:
            failures.append(str(error))
    raise DataError("\n".join(failures))


def _opened(dataset: Dataset, folder: Path) -> ImageSet:
    """Open what was unpacked; all parts must be whole."""
    try:
        images = read(dataset, folder)
    except DataError as error:
        raise DataError(
            f"{dataset.name}: the archive does not hold the dataset, nothing was installed: {error}"
        ) from error
    for part, want in dataset.parts.items():
        if len(found := images.part(part)) != want.images:
            raise DataError(
                f"{dataset.name}: the archive has {len(found):,} of the {want.images:,} images of the {part} part; "
                "nothing was installed"
            )
    return images
