"""The certificate: how an explanation was computed, and which checks passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphsvx.utils.printable import count, html_table


@dataclass(frozen=True)
class GameReport:
    """How one game (over features, nodes, edges or jointly) was evaluated."""

    name: str
    players: int
    exact: bool
    """True if the credit is proved to be the Shapley value itself: no coalition was left out, and
    the model's structure is known or each coalition was evaluated by a plain call."""
    budget: int
    """Model calls allowed."""
    calls: int
    """Model calls made: distinct perturbed graphs that were evaluated."""
    coalitions: int
    """Coalitions that were drawn or enumerated; many of them share one perturbed graph."""
    r2: float | None
    """R² of the surrogate on the played rows, by their weights (1 for an additive game); where the
    connected sets were enumerated, each counts once. It can be negative: the surrogate is tied to
    the model at the empty and at the full row. None: there is no surrogate."""
    mask: str
    """The mask generator that chose the rows."""
    model: str | None = None
    """The model of the game that values were estimated with; None: an additive one."""
    held_out_r2: float | None = None
    """Share of the variance of held-out pairs of coalitions that this model predicted."""
    exact_if_shortcuts_hold: bool = False
    """True if no coalition was left out, but some were evaluated by shortcuts alone that the
    model's structure, which is unknown, may not allow."""
    replayed: int = 0
    """Coalitions that were evaluated again by plain calls, which gave the same outputs."""

    @property
    def status(self) -> str:
        """Whether values are exact, exact under a condition, or estimated."""
        if self.exact:
            return "exact"
        return "exact if shortcuts hold" if self.exact_if_shortcuts_hold else "estimated"

    def line(self) -> str:
        """One game in a few words."""
        held_out = replayed = ""
        if self.held_out_r2 is not None:
            held_out = f", R² {self.held_out_r2:.2f} on held-out pairs"
        if self.exact_if_shortcuts_hold:
            coalitions = f"{1 << self.players:,}" if self.players <= 20 else f"2^{self.players}"
            replayed = f"; {self.replayed} of {coalitions} coalitions replayed"
        counts = f"{count(self.players, 'player')}, {count(self.calls, 'call')}"
        return f"{self.name} {self.status} ({counts}{held_out}{replayed})"


@dataclass(frozen=True)
class Certificate:
    """What was computed, how far it can be trusted, and what it rests on."""

    games: tuple[GameReport, ...]
    residual: float
    """prediction - base - total: what the credit fails to account for."""
    seed: int
    depth: int | None
    """Message-passing depth of the model; None: it could not be found, the whole graph was used."""
    checks: tuple[str, ...] = ()
    """Run-time checks that passed."""
    fallback: str | None = None
    """The slower way that was taken because a check failed, and which."""
    tolerance_met: bool | None = None
    """With `tolerance`: whether every error bar went below it. None: no tolerance was given."""
    relative_error: float | None = None
    """Root of the squared standard errors over the squared credit of the explained output; 0 if
    exact, None if errors are not known."""
    calls_needed: int | None = None
    """About how many calls would reach the tolerance (or 1 % relative error, by default), where
    sampling ended before; None: it was reached, or cannot be predicted."""
    by_clock: bool = False
    """True: `seconds` limited the calls, so that another run may make more or fewer of them."""
    no_influence: str | None = None
    """Where no player changes the output: what the reason may be, and what to try."""

    by_cost: bool = False
    """True: calls of the model are so costly that fewer were made than by default."""
    given_up: tuple[str, ...] = ()
    """Shortcuts and checks that failed with an error, and what was not done because of it."""
    precision: str | None = None
    """The floating type that the model computes in, where it is below single precision."""

    @property
    def exact(self) -> bool:
        """True if the values of every game are proved to be exact."""
        return all(game.exact for game in self.games)

    @property
    def status(self) -> str:
        """ "exact", "exact if shortcuts hold" or "estimated": that of the least sure game."""
        return max((game.status for game in self.games), key=_STATUSES.index, default="exact")

    @property
    def calls(self) -> int:
        """Distinct perturbed graphs that went through the model, all games together."""
        return sum(game.calls for game in self.games)

    def _repr_html_(self) -> str:
        return html_table(self.line(), _COLUMNS, map(_cells, self.games))

    def __str__(self) -> str:
        """A table of the games, and a line for each further fact."""
        rows = [_COLUMNS, *map(_cells, self.games)] if self.games else [("no players",)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            self._with_facts(
                "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
                for row in rows  # the first column is text, the others are numbers
            )
        )

    def line(self) -> str:
        """The whole certificate in one line."""
        games = [game.line() for game in self.games]
        return "; ".join(self._with_facts(games or ["no players"]))

    def _with_facts(self, games: Iterable[str]) -> list[str]:
        """What is said of the games, and what holds for all of them together."""
        goal = "1 % relative error" if self.tolerance_met is None else "the tolerance"
        facts = (
            self.no_influence,
            *games,
            f"residual {self.residual:.1e}",
            f"seed {self.seed}",
            "whole graph" if self.depth is None else f"model depth {self.depth}",
            self.checks and f"checked: {', '.join(self.checks)}",
            self.fallback and f"slower way: {self.fallback}",
            _TOLERANCE[self.tolerance_met],
            self.relative_error and f"relative error {self.relative_error:.2g}",
            self.calls_needed is not None and f"{goal} needs about {self.calls_needed:,} calls",
            self.by_clock and "calls limited by the clock: another run may differ",
            self.by_cost and "few calls, as each is costly: bars are wide, samples= asks for more",
            self.precision and f"the model computes in {self.precision}",
            *self.given_up,
        )
        return [str(fact) for fact in facts if fact]


_TOLERANCE = {True: "tolerance met", False: "tolerance NOT met", None: ""}
_STATUSES = ("exact", "exact if shortcuts hold", "estimated")
_COLUMNS = ("game", "values", "players", "model calls", "coalitions", "R²", "held-out R²", "mask")


def _cells(game: GameReport) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (game.players, game.calls, game.coalitions))
    shares = ("–" if r2 is None else f"{r2:.4f}" for r2 in (game.r2, game.held_out_r2))
    return (game.name, game.status, *counts, *shares, game.mask)
