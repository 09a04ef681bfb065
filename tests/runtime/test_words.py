"""Words that messages and pages have in common."""

import pytest

from manygp.runtime.words import counted, safe


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
