"""An explanation in words: two or three plain sentences, or the complete account."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from graphsvx.results.ranking import (
    Entry,
    Players,
    cell_name,
    decimal,
    entries,
    folds,
    leading,
    leading_cells,
    leading_pairs,
    scale_of,
    signed,
)
from graphsvx.utils.constraints import checked
from graphsvx.utils.printable import one_line

if TYPE_CHECKING:
    from graphsvx.results.explanation import Explanation

MOST_NAMED = 3
Audience = Literal["everyone", "expert"]


def describe(explanation: Explanation, audience: Audience = "everyone") -> str:
    """Two or three plain sentences, or with `audience="expert"` the complete account.

    Raises:
        InputError: there is no such audience.

    """
    if checked(audience, Audience, "audience") == "expert":
        return "\n".join(map(one_line, _for_experts(explanation)))
    return " ".join(map(one_line, _for_everyone(explanation)))


def adds_up(explanation: Explanation) -> bool:
    """Whether base and credit make up the prediction, as Shapley values do and masks do not."""
    size = max(abs(explanation.prediction), abs(explanation.base), abs(explanation.total))
    gap = explanation.prediction - explanation.base - explanation.total
    return math.isfinite(gap) and abs(gap) <= 1e-4 * size + 1e-9


def equation(explanation: Explanation) -> str:
    """prediction = base + features + nodes + edges, in numbers, where it holds."""
    prediction, base = decimal(explanation.prediction, 4), decimal(explanation.base, 4)
    if not adds_up(explanation):
        credit = signed(explanation.total, 4)
        return f"prediction {prediction}, base {base}, credit {credit}, which does not add up"
    terms = ""
    for kind, players in explanation.credit_by_kind.items():
        total = math.fsum(players.values[explanation.row].tolist())
        if players.players:
            terms += f" {'−' if total < 0 else '+'} {decimal(abs(total), 4)} ({kind}s)"
    return f"prediction {prediction} = base {base}{terms}"


# --- for everyone ----------------------------------------------------------------------


def _for_everyone(explanation: Explanation) -> list[str]:
    credited = [entry for entry in entries(explanation) if entry.credit != 0]
    warning = explanation.certificate.no_influence
    sentences = [] if warning is None else [f"{warning[:1].upper()}{warning[1:]}."]
    sentences.append(_what_it_says(explanation))
    if not credited:
        sentences.append(
            "There is nothing to share out: no feature, node or edge that could be left out "
            "changes this answer."
        )
    elif not adds_up(explanation):
        names = [entry.name for entry in _most_important(credited)]
        method, verb = explanation.method.partition("(")[0], "is" if len(names) == 1 else "are"
        sentences.append(f"According to {method}, what matters most {verb} {_joined(names)}.")
    else:
        sentences += [_without(explanation), _groups(explanation), _who(explanation, credited)]
        sentences += [_cells(explanation), *_in_sets(explanation)]
    return [sentence for sentence in sentences if sentence]


def _what_it_says(explanation: Explanation) -> str:
    name, score = _named(explanation, explanation.target), explanation.prediction
    shares, centres = explanation.scale == "probability", explanation.centres
    about = {
        "node": f"For {explanation.node_label(centres[0]) if centres else 'this node'}",
        "nodes": f"For {len(centres)} nodes together",
        "edge": f"For the {explanation.link_label}",
        "graph": "For this graph",
        "model": "On the whole",
    }[explanation.kind]
    if explanation.rather_than is not None:
        other = _named(explanation, explanation.rather_than)
        if shares:
            points = f"{abs(100 * score):.0f} percentage points"
            side = "more" if score >= 0 else "less"
            return f"{about}, the model gives {name} {points} {side} than {other}."
        side = "above" if score >= 0 else "below"
        return f"{about}, the model's score for {name} is {decimal(abs(score))} {side} {other}."
    if shares:
        several = len(explanation.outputs) > 1
        wins = score > 0.5 or (several and score >= float(explanation.predictions.max()))
        says = f"says {name} with" if wins else f"gives {name}"
        return f"{about}, the model {says} {_percent(score)}."
    if explanation.scale == "value":
        single = len(explanation.outputs) == 1 and not explanation.class_names
        return f"{about}, the model's value{'' if single else f' {name}'} is {decimal(score)}."
    return f"{about}, the model's score for {name} is {decimal(score)} ({scale_of(explanation)})."


def _without(explanation: Explanation) -> str:
    """What it would say with the players switched off.

    Features and nodes play separate games that meet at the isolated node with all its features
    (relative efficiency), so base plus features is the answer without any neighbour.
    """
    # Rescaled or selected credit no longer meets at the isolated node.
    changed = explanation.balance is not None or explanation.selection is not None
    separate = {game.name for game in explanation.certificate.games} <= {"features", "nodes"}
    nodes, features = explanation.node_credit, explanation.feature_credit
    condition, scores = "With every player switched off", explanation.bases
    if explanation.kind == "node" and nodes.players and separate and not changed:
        condition, scores = "Without its neighbours", scores + features.values.sum(1)
    elif explanation.kind == "graph" and nodes.players:
        condition = "With all its nodes switched off"
    elif features.players and not nodes.players:
        condition = "With the features that play switched off"
    score, best = float(scores[explanation.row]), int(scores.argmax())
    shares = explanation.scale == "probability"
    if explanation.rather_than is not None:
        difference = f"{_points(score)} points" if shares else signed(score)
        return f"{condition} the difference would be {difference}."
    if not shares:
        return f"{condition} it would be {decimal(score)}."
    answer = f"give {_named(explanation, explanation.target)} {_percent(score)}"
    if best == explanation.row:
        return f"{condition} it would {answer}."
    other = _named(explanation, explanation.outputs[best])
    return f"{condition} it would say {other} with {_percent(float(scores[best]))} and {answer}."


def _groups(explanation: Explanation) -> str:
    """The groups whose credit is certain, where there are many players."""
    certain = [group for group in folds(explanation) if group.sure and len(group.members) > 1]
    certain.sort(key=lambda group: -abs(group.credit))
    words = [
        f"{'the ' if group.name[0].isdigit() else ''}{group.name} "
        f"{'add' if group.credit > 0 else 'take away'} {decimal(abs(group.credit))}"
        for group in certain[:MOST_NAMED]
    ]
    return f"Together, {_joined(words)}." if words else ""


def _who(explanation: Explanation, credited: list[Entry]) -> str:
    moved = math.fsum(abs(entry.credit) for entry in credited)
    certain = [entry for entry in credited if entry.sure]
    if not certain:
        return "These are estimates from so few calls that no player can be told from chance."
    helping = [entry for entry in certain if entry.credit > 0]
    against = [entry for entry in certain if entry.credit < 0]
    named = _most_important(helping or against)
    share = math.fsum(abs(entry.credit) for entry in named) / moved
    words = _joined([f"{entry.name} ({signed(entry.credit)})" for entry in named])
    verb = "accounts" if len(named) == 1 else "account"
    suffix = "" if helping else ", all of it against this answer"
    text = f"{_capital(words)} {verb} for {_percent(share)} of all credit{suffix}"
    if helping and against and abs(against[0].credit) >= 0.1 * moved:
        text += f"; {against[0].name} speaks most against it ({signed(against[0].credit)})"
    if not explanation.certificate.exact and any(entry.error != 0 for entry in named):
        unsure = len(credited) - len(certain)
        text += "; these are estimates"
        text += f", and {unsure} of {len(credited)} players may be chance" if unsure else ""
    return text + "."


def _cells(explanation: Explanation) -> str:
    """The features of nodes that matter most, where cells play."""
    cells = leading_cells(explanation, 2)
    words = [f"{cell_name(explanation, cell)} ({signed(cell.value)})" for cell in cells]
    return f"Of single features of nodes, {_joined(words)} matter most." if words else ""


def _in_sets(explanation: Explanation) -> list[str]:
    """What players do together, and the sets that were asked for."""
    sentences = []
    if explanation.interactions is not None:
        index = explanation.interactions.index
        for pair in leading_pairs(explanation)[:1]:
            verb = "add" if pair.value >= 0 else "take away"
            size = decimal(abs(pair.value))
            sentences.append(f"{_joined(pair.players)} together {verb} {size} ({index}).")
    for answer in explanation.answers:
        names = _joined(answer.players) or "nothing"
        if answer.found and answer.question == "flip":
            says = explanation.class_name(answer.predicted)
            sentences.append(f"Without {names} the model would say {says}.")
        elif answer.found:
            shares = explanation.scale == "probability"
            score = _percent(answer.score) if shares else f"a score of {decimal(answer.score)}"
            sentences.append(f"{names} alone would be enough: {score}.")
    return [_capital(sentence) for sentence in sentences]


def _most_important(credited: list[Entry]) -> list[Entry]:
    """As few as carry half of this side's credit, three at the most."""
    total = math.fsum(abs(entry.credit) for entry in credited)
    named: list[Entry] = []
    for entry in credited[:MOST_NAMED]:
        if math.fsum(abs(e.credit) for e in named) >= 0.5 * total:
            break
        named.append(entry)
    return named


def _named(explanation: Explanation, output: int) -> str:
    return f'"{explanation.class_name(output)}"'


def _percent(share: float) -> str:
    if 0.995 <= share < 1:
        return "more than 99 %"
    if share and abs(share) < 0.005:  # also -1e-9, a probability of 0 by rounding
        return "less than 1 %"
    return f"{100 * share:.0f} %".replace("-", "−")


def _points(difference: float) -> str:
    """A difference of probabilities in whole percentage points, with its sign."""
    points = round(100 * difference)
    return f"{points:+d}".replace("-", "−") if points else "0"


def _joined(names: Sequence[str]) -> str:
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _capital(words: str) -> str:
    """The words with a capital letter, unless they begin with a name from the data."""
    ours = words.startswith(("node ", "feature ", "edge "))
    return words[:1].upper() + words[1:] if ours else words


# --- for experts -----------------------------------------------------------------------


def _for_experts(explanation: Explanation) -> list[str]:
    certificate = explanation.certificate
    lines = [] if certificate.no_influence is None else [certificate.no_influence]
    lines += [
        f"{explanation.title} ({explanation.method}, {scale_of(explanation)} scale)",
        explanation.meaning,
        f"prediction {explanation.prediction:.6g}, base {explanation.base:.6g}, "
        f"credit in total {explanation.total:+.6g}, residual {certificate.residual:+.1e}"
        + ("" if adds_up(explanation) else "; the credit does not add up to the prediction"),
    ]
    if explanation.rather_than is not None:
        lines.append(
            f"Contrast: credit for {explanation.class_name(explanation.target)} minus credit for "
            f"{explanation.class_name(explanation.rather_than)}; its standard errors are upper "
            f"bounds (the sum of the two)."
        )
    kinds: tuple[Players, ...] = ("features", "nodes", "edges")
    lines += [_account(kind, players) for kind in kinds if (players := entries(explanation, kind))]
    lines += [
        f"Group: {group.name} {_with_error(group.credit, group.error)}"
        for group in folds(explanation)
    ]
    lines += [
        f"Game {game.name}: {game.players} players, "
        f"{game.status} by {game.mask}, {game.calls} model calls for "
        f"{game.coalitions} coalitions ({game.budget} allowed), "
        + ("no surrogate" if game.r2 is None else f"weighted R² {game.r2:.4f}")
        + ("" if game.model is None else f"; {game.model}")
        for game in certificate.games
    ]
    return [*lines, f"Certificate: {certificate.line()}"]


def _account(kind: str, players: list[Entry], most: int = 10) -> str:
    shown, rest = leading(players, most) if any(e.sure for e in players) else ([], players)
    words = [f"{entry.name} {_with_error(entry.credit, entry.error)}" for entry in shown]
    if rest:
        others = f"{len(rest)} more" if shown else f"{len(rest)} players"
        words.append(f"{others} together {math.fsum(e.credit for e in rest):+.4g}")
    total = math.fsum(entry.credit for entry in players)
    unsure = sum(not entry.sure for entry in players)
    note = f"; {unsure} within two standard errors of 0" if unsure else ""
    return f"{kind.capitalize()} ({len(players)}, sum {total:+.4g}{note}): {', '.join(words)}"


def _with_error(credit: float, error: float) -> str:
    return f"{credit:+.4g}" + ("" if math.isnan(error) else f" ± {error:.2g}")
