"""Components of the default estimator are switched off one at a time."""

from __future__ import annotations

from benchmarks import ablate, coverage
from graphsvx.utils.context import Components, components, only


def test_one_component_is_off_at_a_time() -> None:
    for name, (_, chosen) in ablate.REMOVED.items():
        off = [part for part, on in vars(chosen).items() if not on]
        assert [part.replace("_", " ") for part in off] == ([name] if off else [])
        with only(chosen):
            assert components() == chosen
    assert components() == Components()


def test_an_estimate_without_the_process_misses_more() -> None:
    game = next(coverage.judged_games(
        iter([coverage.hub(40, 0, 3)]), (20, 60), seed=1, each=1, calls=100
    ))  # fmt: skip
    complete, without = (
        ablate.outcome(game, name, 300, 0) for name in ("nothing", "the process (WLS)")
    )
    assert complete is not None
    assert without is not None
    assert without.error > 2 * complete.error
    assert ablate.outcome(game, "waves", 300, 0).error == complete.error  # no look-ups here
