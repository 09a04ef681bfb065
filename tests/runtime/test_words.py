"""Words that messages and pages have in common."""

import pytest

from manygp.runtime.words import counted, duration, safe


@pytest.mark.parametrize("text", ["plain", "größe 温 🙂", "two\nlines", "", "a\u0301"])
def test_text_that_only_shows_stays_as_it_is(text):
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("bell\x07", "bell\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb", "a\\rb"),
        ("a\tb", "a\\tb"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2028", "\\u2028"),
        ("\x7f", "\\x7f"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_controls_a_terminal_is_written_as_an_escape(text, shown):
    assert safe(text) == shown


def test_a_number_and_its_noun():
    assert (counted(1, "row"), counted(2000, "row")) == ("1 row", "2,000 rows")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0.001 s"),
        (0.0342, "0.03 s"),
        (0.84, "0.8 s"),
        (4.25, "4.2 s"),
        (9.96, "10 s"),
        (45.4, "45 s"),
        (59.6, "1 min"),
        (63.0, "1 min 5 s"),
        (140.0, "2 min 20 s"),
        (598.0, "10 min"),
        (1510.0, "25 min"),
        (3590.0, "1 h"),
        (3900.0, "1 h 5 min"),
        (86_390.0, "1 d"),
        (183_600.0, "2 d 3 h"),
    ],
)
def test_durations_are_told_as_people_say_them(seconds, told):
    assert duration(seconds) == told
