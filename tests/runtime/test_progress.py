"""What a long piece of work tells: phases, the time that is left, and nothing if not asked."""

import io
import threading
from types import SimpleNamespace

import pytest

from manygp.runtime import progress
from manygp.runtime.progress import SILENT, Bar, Progress, Schedule, aside, say, shown
from patching import with_numbers

PLAN = {"trend": 8.0, "kernel": 30.0, "choice": 12.0, "experts": 50.0}


class Clock:
    """A time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def terminal(monkeypatch):
    """A terminal in place of standard error, as the module sees it."""
    stream = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    return stream


def hearts():
    return [one for one in threading.enumerate() if one.name == "manygp-progress"]


# The time that is left


def run_until(schedule, clock, seconds, pace, *, counted):
    """Let planned phases pass at a pace until so many seconds are over; the total they take."""
    total, begin = pace * sum(PLAN.values()), clock.now
    schedule.expect(PLAN)
    for phase, planned in PLAN.items():
        schedule.begin(phase)
        for step in range(1, 21):
            if clock.now - begin + pace * planned / 20 > seconds:
                return total
            clock.now += pace * planned / 20
            if counted:
                schedule.advance(step / 20)
    return total


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("pace", [0.1, 0.5, 1.0, 3.0, 10.0])
def test_after_a_tenth_the_estimate_is_right_within_a_factor_of_two(clock, pace, counted):
    schedule = Schedule(clock)
    total = pace * sum(PLAN.values())
    run_until(schedule, clock, 0.1 * total, pace, counted=counted)
    assert 0.5 < (schedule.elapsed + schedule.left) / total < 2.0


@pytest.mark.parametrize("pace", [0.2, 5.0])
def test_after_half_of_the_time_the_estimate_is_right_within_a_twentieth(clock, pace):
    for part in (0.5, 0.7, 0.9):
        schedule, total = Schedule(clock), pace * sum(PLAN.values())
        run_until(schedule, clock, part * total, pace, counted=True)
        assert schedule.elapsed + schedule.left == pytest.approx(total, rel=0.05)


def test_before_there_is_a_plan_no_time_is_promised(clock):
    schedule = Schedule(clock)
    schedule.begin("reading")
    assert schedule.left is None
    assert schedule.part == 0.0
    clock.now += 2
    schedule.expect(PLAN)
    assert schedule.left == pytest.approx(100.0)


def test_what_comes_before_the_plan_says_nothing_about_its_pace(clock):
    schedule = Schedule(clock)
    schedule.begin("reading")
    clock.now += 1000
    schedule.expect(PLAN)
    schedule.begin("trend")
    assert schedule.left == pytest.approx(100.0)


def test_a_phase_that_had_nothing_to_do_changes_no_pace(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    schedule.begin("trend")
    clock.now += 0.01
    schedule.begin("kernel")
    assert schedule.left == pytest.approx(92.0)


def test_phases_that_are_left_out_are_not_waited_for(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    schedule.begin("choice")
    assert schedule.left == pytest.approx(62.0)


def test_a_phase_that_is_not_planned_changes_no_pace(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    schedule.begin("trend")
    clock.now += 8
    schedule.begin("thinking")
    clock.now += 500
    assert schedule.left == pytest.approx(92.0)
    schedule.begin("kernel")
    assert schedule.left == pytest.approx(92.0)


def test_a_phase_that_takes_longer_slows_the_rest_down(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    schedule.begin("trend")
    lefts = []
    for _ in range(4):
        clock.now += 8
        lefts.append(schedule.left)
    assert lefts == sorted(lefts)
    assert lefts[-1] > 3 * 92


def test_more_work_than_planned_is_not_taken_for_slowness(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    schedule.begin("trend")
    clock.now += 80
    schedule.advance(10.0)  # ten times the work
    schedule.begin("kernel")
    assert schedule.left == pytest.approx(92.0)


def test_a_time_budget_bounds_the_estimate(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN, limit=20.0)
    schedule.begin("trend")
    assert schedule.left == pytest.approx(20.0)
    clock.now += 30
    assert schedule.left == 0.0


def test_the_bar_never_goes_back(clock):
    schedule = Schedule(clock)
    schedule.expect(PLAN)
    parts = []
    for phase, seconds in (("trend", 1), ("kernel", 300), ("choice", 2), ("experts", 50)):
        schedule.begin(phase)
        parts.append(schedule.part)
        clock.now += seconds
        parts.append(schedule.part)
    assert parts == sorted(parts)
    assert 0.0 <= parts[0] < parts[-1] <= 1.0


def test_items_and_calls_advance_their_phase(clock):
    schedule = Schedule(clock)
    schedule.begin("experts")
    seen = [(item, schedule.share) for item in schedule.track("experts", "abcd", 4)]
    assert seen == [("a", 0.25), ("b", 0.5), ("c", 0.75), ("d", 1.0)]
    schedule.begin("kernel")
    assert list(schedule.track("experts", "ab", 2)) == ["a", "b"]
    assert schedule.share == 0.0
    double = schedule.counting(lambda x: 2 * x, 10)
    assert [double(1), double(2), double(3)] == [2, 4, 6]
    assert schedule.share == pytest.approx(0.2)  # two are done when the third begins


# How it is shown


def test_without_a_terminal_each_phase_has_a_line(clock):
    stream = io.StringIO()
    bar = Bar(stream, clock)
    bar.begin("reading")
    clock.now += 2
    bar.expect(PLAN)
    bar.begin("trend")
    clock.now += 8
    bar.begin("kernel")
    bar.close()
    assert stream.getvalue().splitlines() == [
        "manygp: reading",
        "manygp: trend after 2.0 s, about 1 min 40 s left",
        "manygp: kernel after 10 s, about 1 min 30 s left",
    ]
    assert not hearts()


def test_a_terminal_has_one_line_that_is_gone_at_the_end(clock):
    stream = Terminal()
    bar = Bar(stream, clock)
    bar.expect(PLAN)
    bar.begin("trend")
    clock.now += 8
    bar.begin("kernel")
    bar.close()
    text = stream.getvalue()
    assert "\n" not in text
    last, blank = text.split("\r")[-4], text.split("\r")[-2]
    assert last.rstrip().endswith("kernel after 8.0 s, about 1 min 30 s left")
    assert "━━" in last
    assert not blank.strip()
    assert len(blank) >= len(last.rstrip())
    assert max(map(len, text.split("\r"))) < progress.LINE_WIDTH


def test_a_stream_without_such_characters_gets_plain_ones(clock):
    stream = Terminal()
    stream.encoding = "ascii"
    bar = Bar(stream, clock)
    bar.expect(PLAN)
    bar.begin("trend")
    bar.close()
    assert stream.getvalue().isascii()


def test_the_line_is_drawn_while_nothing_happens(monkeypatch, terminal):
    with_numbers(monkeypatch, progress, "PACE", redraw_seconds=0.01)
    drawn = threading.Event()
    with shown(verbose=True) as told:
        told.begin("reading")
        write = terminal.write
        monkeypatch.setattr(terminal, "write", lambda text: (write(text), drawn.set()))
        assert drawn.wait(timeout=30)


def test_messages_stand_on_their_own_lines(terminal):
    with shown(verbose=True) as told:
        told.begin("reading")
        say("hello")
    before, after = terminal.getvalue().split("manygp: hello\n")
    assert before.endswith(" \r")
    assert not after.strip()


def test_a_terminal_that_is_gone_stops_no_work(terminal, monkeypatch):
    def broken(text):
        raise OSError("gone")

    monkeypatch.setattr(terminal, "write", broken)
    with shown(verbose=True) as told:
        told.begin("reading")
    assert not hearts()


def test_a_bar_without_a_thread_to_be_had_is_drawn_at_each_phase(terminal, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with shown(verbose=True) as told:
        told.begin("reading")
    assert "reading" in terminal.getvalue()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_or_failure_closes_the_line_and_ends_the_thread(terminal, error):
    def work():
        with shown(verbose=True) as told:
            told.begin("reading")
            assert len(hearts()) == 1
            raise error

    with pytest.raises(error):
        work()
    assert not hearts()
    assert not terminal.getvalue().split("\r")[-2].strip()
    with aside():  # nothing is open any more
        pass


def test_what_is_not_asked_for_is_silent_and_starts_no_thread(terminal):
    with shown(verbose=False) as told:
        assert told is SILENT
        told.expect(PLAN)
        told.begin("trend")
        told.advance(0.5)
        assert list(told.track("trend", [1, 2], 2)) == [1, 2]
        assert not hearts()
    assert terminal.getvalue() == ""
    assert type(SILENT) is Progress


def test_work_within_work_has_no_second_bar(terminal):
    with shown(verbose=True) as outer:
        with shown(verbose=True) as inner:
            assert inner is outer  # a fit within a command
        with shown(verbose=False) as inner:
            assert inner is SILENT
        outer.expect(PLAN)
        with shown(verbose=True) as inner:
            assert inner is SILENT  # a part of a phase
        assert len(hearts()) == 1
