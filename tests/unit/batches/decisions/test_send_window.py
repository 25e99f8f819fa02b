from services.batches.decisions.send_window import SendWindow


def grown(window: SendWindow, num_answers: int) -> int:
    for _ in range(num_answers):
        window.answered()
    return window.size


def test_it_begins_with_the_most_and_has_never_more() -> None:
    window = SendWindow(20)

    assert (window.size, window.opens_s(5.0)) == (20, 5.0)
    assert grown(window, 100) == 20


def test_a_refusal_halves_it_once_and_pauses() -> None:
    window = SendWindow(64)

    window.refused(now=10.0, pause_s=2.0)
    window.refused(now=10.0, pause_s=3.0)
    window.refused(now=11.0, pause_s=1.0)

    assert window.size == 32
    assert (window.opens_s(11.0), window.opens_s(14.0)) == (13.0, 14.0)


def test_a_round_of_answers_makes_an_eighth_more_room() -> None:
    window = SendWindow(64)
    window.refused(now=10.0, pause_s=1.0)

    assert grown(window, 32) == 36
    assert grown(window, 1000) == 64


def test_one_is_the_least() -> None:
    window = SendWindow(64)

    for now in range(10):
        window.refused(now=float(now), pause_s=0.5)

    assert window.size == 1
