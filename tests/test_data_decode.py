"""Every kind of file that people have becomes RGB bytes, and every broken one becomes a DecodeError with its name."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from secondsight.data.loading.decode import DecodeError, Scratch, decode
from secondsight.data.loading.orientation import exif_orientation, jpeg_orientation, upright
from secondsight.errors import DataError

RNG = np.random.default_rng(0)


def scene(height: int = 40, width: int = 60) -> np.ndarray:
    """A smooth picture with no symmetry: red grows to the right, green downwards, blue in one corner."""
    y, x = np.mgrid[0:height, 0:width]
    blue = 255 * ((y < height // 3) & (x < width // 3))
    return np.stack([255 * x // (width - 1), 255 * y // (height - 1), blue], axis=2).astype(np.uint8)


def encoded(pixels: np.ndarray | Image.Image, format: str, **options) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def png(header: tuple[int, int, int, int], rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG by hand, for what Pillow cannot write: header = width, height, bit depth, colour type."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", *header, 0, 0, 0))
    middle = b"".join(chunk(kind, data) for kind, data in extra)
    return b"\x89PNG\r\n\x1a\n" + start + middle + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def rows16(samples: np.ndarray) -> bytes:
    return b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)


def close(a: np.ndarray, b: np.ndarray, levels: float) -> bool:
    return a.shape == b.shape and float(np.abs(a.astype(int) - b.astype(int)).mean()) <= levels


# ---------------------------------------------------------------- JPEG


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 100}, {"optimize": True}]
)
def test_jpeg_decodes_to_exactly_what_pillow_decodes(options):
    content = encoded(scene(), "JPEG", **options)
    np.testing.assert_array_equal(decode(content), np.asarray(Image.open(io.BytesIO(content)).convert("RGB")))


def test_a_real_photograph_decodes_to_exactly_what_pillow_decodes(shared):
    paths = sorted((shared / "data/CUB_200_2011/images").glob("*/*.jpg"))[::400]
    for path in paths:
        np.testing.assert_array_equal(decode(path), np.asarray(Image.open(path).convert("RGB")))


def test_path_string_and_bytes_are_the_same_to_decode(tmp_path):
    content = encoded(scene(), "JPEG")
    path = tmp_path / "ein Vogel ☂.jpg"
    path.write_bytes(content)
    for source in (path, str(path), bytearray(content), memoryview(content)):
        np.testing.assert_array_equal(decode(source), decode(content))


def test_grey_jpeg_becomes_rgb():
    grey = scene()[..., 0]
    result = decode(encoded(grey, "JPEG", quality=95))
    assert close(result, np.repeat(grey[..., None], 3, 2), 2)


def test_adobe_rgb_coded_jpeg_keeps_its_colours():
    content = encoded(scene(), "JPEG", quality=95, keep_rgb=True)
    assert close(decode(content), scene(), 2)


@pytest.mark.parametrize(
    ("target", "shape"), [(None, (400, 600)), (200, (200, 300)), (101, (150, 225)), (90, (100, 150))]
)
def test_large_jpeg_is_shrunk_while_decoding_but_never_below_the_target(target, shape):
    content = encoded(scene(400, 600), "JPEG", quality=95)
    for scratch in (None, Scratch()):
        result = decode(content, target=target, scratch=scratch)
        assert result.shape == (*shape, 3)
        small = Image.fromarray(scene(400, 600)).resize(shape[::-1], Image.Resampling.BOX)
        assert close(result, np.asarray(small), 3)


def test_target_larger_than_the_picture_changes_nothing():
    content = encoded(scene(), "JPEG")
    np.testing.assert_array_equal(decode(content, target=1000), decode(content))


def test_scratch_memory_is_reused_and_gives_the_same_pixels():
    scratch = Scratch()
    for height, width in [(40, 60), (400, 300), (8, 8), (1, 1)]:
        content = encoded(scene(max(height, 2), max(width, 2))[:height, :width], "JPEG")
        np.testing.assert_array_equal(decode(content, scratch=scratch), decode(content))


def test_pixels_are_writable_and_contiguous_so_that_torch_can_take_them():
    for content in (encoded(scene(), "JPEG"), encoded(scene(), "PNG"), encoded(scene()[..., 0], "PNG")):
        pixels = decode(content)
        assert pixels.flags.writeable
        assert pixels.flags.c_contiguous
        assert pixels.dtype == np.uint8


def cmyk_of(rgb: np.ndarray) -> Image.Image:
    return Image.fromarray(rgb).convert("CMYK")


def without_adobe_marker(content: bytes) -> bytes:
    at = content.index(b"\xff\xee")
    size = int.from_bytes(content[at + 2 : at + 4], "big")
    return content[:at] + content[at + 2 + size :]


def test_cmyk_jpeg_with_adobes_inverted_values():
    assert close(decode(encoded(cmyk_of(scene()), "JPEG", quality=95)), scene(), 2)


def test_cmyk_jpeg_without_adobes_marker_is_not_inverted():
    # Pillow writes the inverted values, so the straight ones are written by inverting them first.
    straight = Image.merge("CMYK", [band.point(lambda v: 255 - v) for band in cmyk_of(scene()).split()])
    assert close(decode(without_adobe_marker(encoded(straight, "JPEG", quality=95))), scene(), 2)


def test_ycck_jpeg():
    # An Adobe YCCK file holds YCbCr of the inverted colours and an inverted K; the marker's last byte says so with 2.
    bands = [255 - np.asarray(band) for band in Image.fromarray(255 - scene()).convert("YCbCr").split()]
    image = Image.merge("CMYK", [Image.fromarray(band) for band in (*bands, np.zeros_like(bands[0]))])
    content = bytearray(encoded(image, "JPEG", quality=95))
    content[content.index(b"Adobe") + 11] = 2
    assert close(decode(bytes(content)), scene(), 3)


def test_first_picture_of_a_multi_picture_jpeg():
    content = encoded(Image.fromarray(scene()), "MPO", save_all=True, append_images=[Image.new("RGB", (60, 40), "red")])
    assert close(decode(content), scene(), 8)


def test_garbage_between_segments_is_forgiven_as_other_programs_do():
    content = encoded(scene(), "JPEG")
    at = content.index(b"\xff\xdb")
    assert close(decode(content[:at] + b"\0\0\0" + content[at:]), decode(content), 0)


# ---------------------------------------------------------------- orientation

JPEG_EXIF = b"\xff\xd8\xff\xe1\0\x40Exif\0\0"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_undone_as_pillow_does_it(orientation, format):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(scene(), format, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    assert expected.shape == ((60, 40, 3) if orientation >= 5 else (40, 60, 3))
    np.testing.assert_array_equal(decode(content), expected)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "code"), [(3, "H"), (4, "I")])
def test_orientation_is_read_in_both_byte_orders_and_integer_types(order, kind, code):
    head = {"<": b"II*\0", ">": b"MM\0*"}[order]
    entries = struct.pack(order + "HHII", 0x010F, 2, 4, 0) + struct.pack(order + "HHI" + code, 0x0112, kind, 1, 6)
    block = head + struct.pack(order + "IH", 8, 2) + entries + b"\0" * 8
    assert exif_orientation(block) == 6
    assert jpeg_orientation(b"\xff\xd8\xff\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block) == 6


@given(st.binary(max_size=64), st.sampled_from([b"", b"II*\0", b"MM\0*", b"II*\0\x08\0\0\0\xff\xff"]))
def test_nonsense_exif_does_no_harm(garbage, head):
    pixels = scene(2, 3)
    for orientation in (exif_orientation(head + garbage), jpeg_orientation(JPEG_EXIF + head + garbage)):
        assert upright(pixels, orientation).size == pixels.size
    assert jpeg_orientation(b"\xff\xd8" + garbage) in range(65536)


def test_orientation_outside_one_to_eight_means_upright():
    exif = Image.Exif()
    exif[0x0112] = 77
    for format in ("JPEG", "PNG"):
        assert decode(encoded(scene(), format, exif=exif)).shape == scene().shape


def test_shrinking_and_turning_work_together():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(scene(400, 600), "JPEG", exif=exif, quality=95)
    assert decode(content, target=190).shape == (300, 200, 3)


# ---------------------------------------------------------------- the other formats


def lossless(format: str, **options) -> bytes:
    return encoded(scene(), format, **options)


@pytest.mark.parametrize(
    "content",
    [
        lossless("PNG"),
        lossless("BMP"),
        lossless("TIFF"),
        lossless("TIFF", compression="tiff_lzw"),
        lossless("PPM"),
        lossless("WEBP", lossless=True),
        lossless("JPEG2000"),
    ],
    ids=["png", "bmp", "tiff", "tiff-lzw", "ppm", "webp", "jpeg2000"],
)
def test_lossless_formats_come_back_exactly(content):
    np.testing.assert_array_equal(decode(content), scene())


def test_palette_png_and_gif():
    image = Image.fromarray(scene()).quantize(16)
    expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(decode(encoded(image, "PNG")), expected)
    np.testing.assert_array_equal(decode(encoded(image, "GIF")), expected)


def test_transparent_palette_colour_becomes_white():
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    expected = np.array([[[255, 0, 0], [255, 255, 255]], [[0, 0, 255], [255, 255, 255]]], np.uint8)
    for format in ("PNG", "GIF"):
        np.testing.assert_array_equal(decode(encoded(image, format, transparency=1)), expected)


def test_palette_with_half_transparent_entries_is_mixed_with_white():
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([0, 0, 0, 200, 100, 0])
    result = decode(encoded(image, "PNG", transparency=bytes([0, 128])))
    assert result[0, 0].tolist() == [255, 255, 255]
    np.testing.assert_allclose(result[0, 1], [227, 177, 127], atol=1)


def test_alpha_is_laid_on_white_whatever_colour_hides_below():
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[0, 0] = (10, 20, 30, 255)
    rgba[0, 1] = (10, 20, 30, 0)
    rgba[1, 0] = (0, 0, 0, 128)
    result = decode(encoded(rgba, "PNG"))
    assert result[0, 0].tolist() == [10, 20, 30]
    assert result[0, 1].tolist() == [255, 255, 255]
    np.testing.assert_allclose(result[1, 0], 127, atol=1)
    la = Image.fromarray(rgba).convert("LA")
    np.testing.assert_allclose(decode(encoded(la, "PNG"))[1, 0], 127, atol=1)


def test_rgb_png_with_a_transparent_colour():
    rows = b"\0" + bytes([1, 2, 3, 9, 9, 9])
    content = png((2, 1, 8, 2), rows, (b"tRNS", struct.pack(">HHH", 9, 9, 9)))
    assert decode(content).tolist() == [[[1, 2, 3], [255, 255, 255]]]


def test_sixteen_bit_grey_is_scaled_not_clipped():
    grey = np.linspace(0, 65535, 24 * 30).round().reshape(24, 30).astype(np.uint16)
    expected = np.repeat((grey / 257).round().astype(np.uint8)[..., None], 3, 2)
    for content in (png((30, 24, 16, 0), rows16(grey)), encoded(Image.fromarray(grey), "TIFF")):
        np.testing.assert_array_equal(decode(content), expected)


def test_a_dark_sixteen_bit_picture_stays_dark():
    grey = np.full((4, 4), 2570, np.uint16)
    assert decode(png((4, 4, 16, 0), rows16(grey))).max() == 10


def test_sixteen_bit_rgb_and_rgba_png():
    rgb = (scene().astype(np.uint16) << 8) | 0x37
    np.testing.assert_array_equal(decode(png((60, 40, 16, 2), rows16(rgb.reshape(40, -1)))), scene())
    rgba = np.dstack([rgb, np.full(rgb.shape[:2], 65535, np.uint16)])
    np.testing.assert_array_equal(decode(png((60, 40, 16, 6), rows16(rgba.reshape(40, -1)))), scene())


def test_sixteen_bit_grey_with_alpha_png():
    la = np.array([[[65535, 65535], [0, 0]]], np.uint16)
    assert decode(png((2, 1, 16, 4), rows16(la.reshape(1, -1)))).tolist() == [[[255] * 3, [255] * 3]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0.0, 0.5, 1.0, -3.0]], np.float32), [0, 128, 255, 0]),
        (np.array([[0.0, 100.0, 255.0, np.nan]], np.float32), [0, 100, 255, 0]),
        (np.array([[0, 257, 65535, 0]], np.int32), [0, 1, 255, 0]),
        (np.array([[0, 7, 255, 0]], np.int32), [0, 7, 255, 0]),
        (np.array([[0, 2**30, 2**31 - 1, 0]], np.int32), [0, 128, 255, 0]),
    ],
)
def test_deep_tiffs_are_scaled_to_the_smallest_usual_white_that_fits(values, expected):
    assert decode(encoded(Image.fromarray(values), "TIFF"))[0, :, 1].tolist() == expected


def test_one_bit_pictures():
    bits = scene()[..., 0] > 127
    expected = np.repeat(np.where(bits, 255, 0).astype(np.uint8)[..., None], 3, 2)
    for format in ("PNG", "TIFF", "BMP", "GIF"):
        np.testing.assert_array_equal(decode(encoded(Image.fromarray(bits), format)), expected)


def test_cmyk_tiff():
    assert close(decode(encoded(cmyk_of(scene()), "TIFF")), scene(), 1)


@pytest.mark.parametrize(("format", "options"), [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_first_frame_of_an_animation_or_page(format, options):
    first, second = Image.new("RGB", (20, 10), (255, 0, 0)), Image.new("RGB", (20, 10), (0, 0, 255))
    content = encoded(first, format, save_all=True, append_images=[second], **options)
    assert (decode(content) == np.array([255, 0, 0])).all()


# ---------------------------------------------------------------- what cannot be decoded


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_truncated_files_are_refused_with_their_name(format, tmp_path):
    content = encoded(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8), format)
    path = tmp_path / f"cut.{format.lower()}"
    for keep in (len(content) // 2, 20):
        path.write_bytes(content[:keep])
        with pytest.raises(DecodeError, match=r"cut\.\w+: cannot be decoded: .+"):
            decode(path)


def test_errors_say_which_file_and_what_is_wrong(tmp_path):
    empty, text, folder = tmp_path / "empty.jpg", tmp_path / "text.jpg", tmp_path / "folder.jpg"
    empty.touch()
    text.write_text("<html>404</html>")
    folder.mkdir()
    for path, cause in [
        (empty, "empty"),
        (text, "not a picture"),
        (folder, "directory"),
        (tmp_path / "no.jpg", "No such"),
    ]:
        with pytest.raises(DecodeError, match=cause) as caught:
            decode(path)
        assert caught.value.source == str(path)
        assert isinstance(caught.value, DataError)


def test_the_error_crosses_processes_whole():
    error = pickle.loads(pickle.dumps(DecodeError("a.jpg", "truncated")))
    assert (error.source, error.cause, str(error)) == ("a.jpg", "truncated", "a.jpg: cannot be decoded: truncated")


def test_a_pipe_in_place_of_a_picture_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(DecodeError, match="not a regular file"):
        decode(tmp_path / "pipe.jpg")


def test_postscript_is_not_run():
    with pytest.raises(DecodeError, match="not a picture"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")


def test_a_bomb_is_refused_before_its_pixels_are_decoded(tmp_path):
    jpeg = bytearray(encoded(scene(), "JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 65000, 65000)
    for content in (bytes(jpeg), png((60000, 60000, 1, 0), b"")):
        with pytest.raises(DecodeError, match="pixels"):
            decode(content)


def test_the_limit_on_pixels_can_be_chosen():
    for format in ("JPEG", "PNG"):
        content = encoded(scene(40, 60), format)
        assert decode(content, max_pixels=2400).shape == (40, 60, 3)
        with pytest.raises(DecodeError, match=r"60×40 is 2,400 pixels, more than the limit of 2,399"):
            decode(content, max_pixels=2399)


SOUND = {
    format: encoded(scene(16, 16), format, **options)
    for format, options in [("JPEG", {}), ("PNG", {}), ("GIF", {}), ("WEBP", {}), ("TIFF", {"compression": "tiff_lzw"})]
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(SOUND)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    st.floats(0.3, 1),
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_bytes_decode_or_raise_decode_error_and_nothing_else(format, damage, keep):
    content = bytearray(SOUND[format])
    for at, value in damage:
        content[int(at * len(content))] = value
    try:
        pixels = decode(bytes(content[: max(1, int(keep * len(content)))]), max_pixels=1_000_000)
    except DecodeError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
