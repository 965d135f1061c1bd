"""The last events of a machine, for its errors."""

from beam_spark_runner.core.story import MAX_EVENTS, Story


def test_the_oldest_events_are_forgotten() -> None:
    story = Story(0.0)
    for number in range(MAX_EVENTS + 5):
        story.note(number, f"event {number}")
    assert len(story) == MAX_EVENTS
    assert str(story).startswith("5.0 s: event 5, 6.0 s: event 6, ")
    assert str(story).endswith("24.0 s: event 24")


def test_events_that_take_turns_do_not_push_others_out() -> None:
    story = Story(10.0)
    story.note(10.5, "connected")
    for number in range(1_000):
        story.note(11.0 + number, "line")
        story.note(11.5 + number, "sent")
    story.note(2_000.0, "lost")
    assert str(story) == (
        "0.5 s: connected, 1000.0 s: line x1000, 1000.5 s: sent x1000, 1990.0 s: lost"
    )


def test_a_long_text_of_an_error_is_cut() -> None:
    story = Story(0.0)
    story.note(0.0, "lost: " + "x" * 10_000)
    assert len(str(story)) < 200
