"""No picture takes the machine or stops a run: it is decoded within the limits, or it is a DecodeError at once."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import textwrap
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from secondsight.data.loading import limits
from secondsight.data.loading.decode import DecodeError, ReadError, Scratch, decode
from secondsight.errors import ConfigError


def saved(pixels: np.ndarray, format: str, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format, **options)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int = 8, colour: int = 0, *, whole: bool = True) -> bytes:
    """All black; without ``whole`` it only claims to have that many rows."""
    row = 1 + -(-width * depth * {0: 1, 2: 3, 6: 4}[colour] // 8)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(row * height) if whole else b""))
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


def webp(width: int, height: int) -> bytes:
    """A lossless WebP that claims this size; its pixels are nonsense."""
    bits = struct.pack("<I", (width - 1) | ((height - 1) << 14)) + bytes(64)
    body = b"WEBP" + b"VP8L" + struct.pack("<I", len(bits) + 1) + b"\x2f" + bits + b"\0"
    return b"RIFF" + struct.pack("<I", len(body)) + body


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again, as often as it may."""
    content = saved(np.full((side, side), 100, np.uint8), "JPEG", progressive=True)
    last, end = content.rindex(b"\xff\xda"), content.rindex(b"\xff\xd9")
    return content[:end] + content[last:end] * scans + content[end:]


@pytest.mark.parametrize(
    ("bomb", "cause"),
    [
        (lambda: png(178_956_970, 1, whole=False), "a side may have 65,535 pixels"),
        (lambda: png(1, 2_796_202, whole=False), "a side may have"),
        (lambda: png(13_377, 13_377, depth=16, whole=False), "1.5 GB of memory, more than the limit of 1 GB"),
        (lambda: png(10_800, 10_800, colour=6, whole=False), "of memory, more than the limit"),
        (lambda: webp(12_000, 12_000), "of memory, more than the limit"),
        (lambda: many_scans(1000, 1100), "scans takes too long"),
        (lambda: png(20_000, 20_000, whole=False), "exceeds limit"),
    ],
    ids=["wide", "tall", "16 bits", "transparent", "webp", "scans", "pixels"],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_before_they_are_decoded(bomb, cause, monkeypatch):
    content = bomb()
    Image.init()  # some of Pillow's plugins make an image of their own
    decode(saved(np.zeros((4, 4), np.uint8), "PNG"))
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(DecodeError, match=cause):
        decode(content)


def test_a_progressive_jpeg_with_an_ordinary_number_of_scans_decodes():
    assert decode(many_scans(400, 30)).shape == (400, 400, 3)


def test_scans_are_counted_by_their_markers():
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert limits.jpeg_scans(saved(pixels, "JPEG")) == (1, False)
    scans, progressive = limits.jpeg_scans(saved(pixels, "JPEG", progressive=True))
    assert progressive
    assert scans > 3
    exif = Image.Exif()
    exif[0x010E] = "\xff\xda" * 50  # in a comment these bytes are no scan
    assert limits.jpeg_scans(saved(pixels, "JPEG", exif=exif)) == (1, False)


def test_the_limit_can_be_raised_and_nonsense_is_named(monkeypatch):
    content = png(4000, 4000)
    monkeypatch.setenv("SECONDSIGHT_DECODE_MEMORY", "100MB")
    with pytest.raises(DecodeError, match=r"0\.1 GB of memory, more than the limit of 0\.1 GB"):
        decode(content)
    monkeypatch.setenv("SECONDSIGHT_DECODE_MEMORY", "1GB")
    assert decode(content).shape == (4000, 4000, 3)
    monkeypatch.setenv("SECONDSIGHT_DECODE_MEMORY", "plenty")
    with pytest.raises(ConfigError, match="SECONDSIGHT_DECODE_MEMORY='plenty'"):
        decode(content)


def test_a_large_picture_does_not_stay_in_the_threads_memory():
    scratch = Scratch()
    scratch.take(Scratch.MOST + 1)
    assert len(scratch._memory) == 0


KINDS = {
    "baseline.jpg": ("RGB", {}),
    "progressive.jpg": ("RGB", {"progressive": True, "subsampling": 0}),
    "inks.jpg": ("CMYK", {"progressive": True}),
    "colour.png": ("RGB", {"compress_level": 1}),
    "transparent.png": ("RGBA", {"compress_level": 1}),
    "deep.png": ("I;16", {"compress_level": 1}),
    "palette.gif": ("P", {}),
    "lossy.webp": ("RGB", {"method": 0}),
    "lossless.webp": ("RGBA", {"method": 0, "lossless": True}),
    "plain.tif": ("RGB", {}),
    "float.tif": ("F", {}),
    "packed.tif": ("RGBA", {"compression": "tiff_lzw"}),
    "plain.bmp": ("RGB", {}),
    "wavelet.jp2": ("RGB", {"quality_mode": "rates", "quality_layers": [20], "irreversible": True}),
    "modern.avif": ("RGBA", {"speed": 10}),
}

MEASURE = textwrap.dedent("""
    import json, os, sys
    from pathlib import Path
    from secondsight.data.loading import limits
    from secondsight.data.loading.decode import decode

    def status(field):
        return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(field + ":"))

    asked = []
    check = limits.check_memory
    import secondsight.data.loading.decode as module
    module.check_memory = lambda needed: (asked.append(needed), check(needed))
    for name in sys.argv[1:]:
        tiny = Path(name).with_name("tiny-" + Path(name).name)
        decode(tiny)  # loads the codec
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        decode(name)
        print(json.dumps([Path(name).name, status("VmHWM") - before, asked[-1]]))
""")


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peak memory is measured on Linux")
def test_every_format_takes_no_more_memory_than_was_counted_on(tmp_path):
    y, x = np.mgrid[0:1200, 0:2000]
    large = Image.fromarray(np.stack([x % 256, y % 256, (x + y) // 8 % 256, 255 - x // 16 % 128], 2).astype(np.uint8))
    for name, (mode, options) in KINDS.items():
        for prefix, image in (("", large), ("tiny-", large.crop((0, 0, 64, 48)))):
            grey = image.convert("L")
            deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
            converted = deep if mode == "I;16" else grey.convert("F") if mode == "F" else image.convert(mode)
            converted.save(tmp_path / (prefix + name), **options)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in KINDS)],
        capture_output=True,
        text=True,
        env=os.environ | {"SECONDSIGHT_DECODE_MEMORY": "1GB"},  # so that small ones are counted, too
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(KINDS)
    over = [(name, used, counted) for name, used, counted in lines if used > counted + (8 << 20)]
    assert not over


SCARCE = textwrap.dedent("""
    import resource, sys
    from secondsight.data.loading.decode import ReadError, decode
    decode(sys.argv[1] + "/tiny.png"); decode(sys.argv[1] + "/tiny.jpg")
    size = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmSize:"))
    resource.setrlimit(resource.RLIMIT_AS, (size + (30 << 20), resource.RLIM_INFINITY))
    for name in ("large.png", "large.jpg"):
        try:
            decode(f"{sys.argv[1]}/{name}")
        except ReadError as error:
            print(name, error.cause, error.lasting)
""")


def test_a_system_without_memory_makes_a_bad_file_not_a_broken_run(tmp_path):
    (tmp_path / "large.png").write_bytes(png(5000, 5000, colour=2))
    (tmp_path / "large.jpg").write_bytes(saved(np.zeros((5000, 5000, 3), np.uint8), "JPEG"))
    for kind in ("PNG", "JPEG"):
        (tmp_path / f"tiny.{kind[:3].lower().replace('jpe', 'jpg')}").write_bytes(
            saved(np.zeros((9, 9, 3), np.uint8), kind)
        )
    done = subprocess.run([sys.executable, "-c", SCARCE, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "large.png there is not enough memory to decode it False",
        "large.jpg there is not enough memory to decode it False",
    ], done.stderr


def test_threads_that_decode_large_pictures_take_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDSIGHT_DECODE_MEMORY", "100MB")
    import secondsight.data.loading.decode as module

    inside, most = [], []
    loaded = Image.Image.convert

    def counted(self, *arguments, **options):
        inside.append(1)
        most.append(len(inside))
        try:
            return loaded(self, *arguments, **options)
        finally:
            inside.pop()

    monkeypatch.setattr(Image.Image, "convert", counted)
    content = png(1500, 1500, colour=2)
    with ThreadPoolExecutor(4) as pool:
        assert {pixels.shape for pixels in pool.map(decode, [content] * 8)} == {(1500, 1500, 3)}
    assert max(most) == 1
    assert not module._TURN.locked()


def test_heic_is_read_with_its_extra_and_named_without(tmp_path, monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, 32:] = 200
    heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "phone.heic", quality=90)
    assert np.abs(decode(tmp_path / "phone.heic").astype(int) - pixels).mean() < 4
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ReadError, match=r"needs the package 'pillow_heif': pip install 'secondsight\[heic\]'"):
        decode(tmp_path / "phone.heic")
