from services.batches.send_window import FIRST_SIZE, SendWindow


def grown(window: SendWindow, num_answers: int) -> int:
    for _ in range(num_answers):
        window.answered()
    return window.size


def test_it_doubles_with_each_round_of_answers_up_to_the_most() -> None:
    window = SendWindow(20)

    assert window.size == FIRST_SIZE == 8
    assert grown(window, 8) == 16
    assert grown(window, 8) == 20


def test_a_refusal_halves_it_once_and_pauses() -> None:
    window = SendWindow(64)
    grown(window, 24)

    window.refused(now=10.0, pause_s=2.0)
    window.refused(now=10.0, pause_s=3.0)
    window.refused(now=11.0, pause_s=1.0)

    assert window.size == 16
    assert (window.opens_s(11.0), window.opens_s(14.0)) == (13.0, 14.0)


def test_behind_a_refusal_a_round_of_answers_makes_room_for_one_more() -> None:
    window = SendWindow(64)
    grown(window, 24)
    window.refused(now=10.0, pause_s=1.0)

    assert grown(window, 15) == 16
    assert grown(window, 2) == 17


def test_one_is_the_least() -> None:
    window = SendWindow(64)

    for now in range(10):
        window.refused(now=float(now), pause_s=0.5)

    assert window.size == 1


def test_the_first_window_is_no_larger_than_the_most() -> None:
    assert SendWindow(3).size == 3
