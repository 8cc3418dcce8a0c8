"""Two screens, compared."""

from PIL import Image, ImageDraw

from deskroll.export.difference import TOLERANCE, Difference, compare, side_by_side


def screen(*boxes: tuple[int, int, int, int], size: tuple[int, int] = (1920, 1080)) -> Image.Image:
    image = Image.new("RGB", size, (40, 70, 96))
    for left, top, width, height in boxes:
        ImageDraw.Draw(image).rectangle((left, top, left + width - 1, top + height - 1), fill=(255, 255, 255))
    return image


def test_what_differs_is_counted_and_framed() -> None:
    found = compare(screen(), screen((100, 200, 30, 10), (500, 250, 1, 1)))
    assert found == Difference(pixels=301, share=301 / (1920 * 1080), box=(100, 200, 401, 51))
    assert compare(screen((1, 2, 3, 4)), screen((1, 2, 3, 4))) == Difference()


def test_a_caret_and_a_clock_are_tolerated_and_a_dialog_is_not() -> None:
    assert compare(screen(), screen((300, 300, 2, 20), (1850, 2, 60, 18))).share <= TOLERANCE
    assert compare(screen(), screen((300, 300, 200, 90))).share > TOLERANCE


def test_noise_of_an_encoding_is_no_difference() -> None:
    assert compare(screen(), Image.new("RGB", (1920, 1080), (50, 60, 100))) == Difference()


def test_another_size_differs_wholly() -> None:
    found = compare(screen(), screen(size=(1280, 720)))
    assert (found.share, found.box) == (1.0, (0, 0, 1280, 720))
    assert side_by_side(screen(), screen(size=(1280, 720)), found).size == (1920 + 8 + 1280, 1080)


def test_the_picture_shows_both_with_a_frame() -> None:
    one, two = screen(), screen((100, 200, 30, 10))
    picture = side_by_side(one, two, compare(one, two))
    assert picture.size == (1920 * 2 + 8, 1080)
    assert picture.getpixel((98, 198)) == (255, 0, 0)
    assert picture.getpixel((1928 + 98, 198)) == (255, 0, 0)
    assert picture.getpixel((1928 + 110, 205)) == (255, 255, 255)
