"""An explanation in words: two or three plain sentences, or the complete account."""

from __future__ import annotations

import math
from typing import Literal

from graphsvx.errors import InputError
from graphsvx.results.ranking import (
    Entry,
    cell_name,
    decimal,
    entries,
    folds,
    leading,
    leading_cells,
    scale_of,
    signed,
)
from graphsvx.results.record import ExplanationRecord
from graphsvx.utils.printable import one_line

Audience = Literal["everyone", "expert"]
MOST_NAMED = 3


def describe(explanation: ExplanationRecord, audience: Audience = "everyone") -> str:
    """What the explanation says, in sentences for everyone or in full for experts."""
    if audience == "everyone":
        return " ".join(map(one_line, _for_everyone(explanation)))
    if audience == "expert":
        return "\n".join(map(one_line, _for_experts(explanation)))
    raise InputError(f"audience must be 'everyone' or 'expert', got {audience!r}")


def adds_up(explanation: ExplanationRecord) -> bool:
    """Whether base and credit make up the prediction, as Shapley values do and masks do not."""
    size = max(abs(explanation.prediction), abs(explanation.base), abs(explanation.total))
    gap = explanation.prediction - explanation.base - explanation.total
    return math.isfinite(gap) and abs(gap) <= 1e-4 * size + 1e-9


def equation(explanation: ExplanationRecord) -> str:
    """prediction = base + features + nodes + edges, in numbers, where it holds."""
    prediction, base = decimal(explanation.prediction, 4), decimal(explanation.base, 4)
    if not adds_up(explanation):
        total = signed(explanation.total, 4)
        return f"prediction {prediction}, base {base}, credit {total}, which does not add up"
    sums = [
        (kind, math.fsum(values.tolist()))
        for kind, values in (
            ("features", explanation.feature_values),
            ("nodes", explanation.node_values),
            ("edges", explanation.edge_values),
        )
        if values.numel()
    ]
    terms = "".join(
        f" {'−' if total < 0 else '+'} {decimal(abs(total), 4)} ({kind})" for kind, total in sums
    )
    return f"prediction {prediction} = base {base}{terms}"


# --- for everyone ----------------------------------------------------------------------


def _for_everyone(explanation: ExplanationRecord) -> list[str]:
    credited = [entry for entry in entries(explanation) if entry.credit != 0]
    warning = explanation.certificate.no_influence
    sentences = [] if warning is None else [f"{warning[:1].upper()}{warning[1:]}."]
    sentences.append(_what_it_says(explanation))
    if not credited:
        sentences.append(
            "There is nothing to share out: no feature, node or edge that could be left out "
            "changes this answer."
        )
        return sentences
    if not adds_up(explanation):
        named = _most_important(credited)
        sentences.append(
            f"According to {explanation.method.partition('(')[0]}, what matters most "
            f"{_is_are(named)} "
            f"{_join_names([entry.name for entry in named])}."
        )
        return sentences
    sentences.append(_without(explanation))
    sentences.append(_groups(explanation))
    sentences.append(_who(explanation, credited))
    sentences.append(_cells(explanation))
    sentences += _in_sets(explanation)
    return [sentence for sentence in sentences if sentence]


def _in_sets(explanation: ExplanationRecord) -> list[str]:
    """What players do together, and the sets that were asked for."""
    sentences = []
    if explanation.interactions is not None:
        for pair in [pair for pair in explanation.together() if pair.sure][:1]:
            verb = "add" if pair.value >= 0 else "take away"
            sentences.append(
                f"{_join_names(list(pair.players))} together {verb} {decimal(abs(pair.value))} "
                f"({explanation.interactions.index})."
            )
    for answer in explanation.answers:
        if not answer.found:
            continue
        names = _join_names(list(answer.players)) if answer.players else "nothing"
        if answer.question == "flip":
            says = explanation.class_name(answer.predicted)
            sentences.append(f"Without {names} the model would say {says}.")
        else:
            share = (
                _percent(answer.score)
                if explanation.scale == "probability"
                else (f"a score of {decimal(answer.score)}")
            )
            sentences.append(f"{names} alone would be enough: {share}.")
    return [_capital(sentence) for sentence in sentences]


def _what_it_says(explanation: ExplanationRecord) -> str:
    name = _named(explanation, explanation.target)
    score = explanation.prediction
    about = _about(explanation)
    if explanation.rather_than is not None:
        other = _named(explanation, explanation.rather_than)
        if explanation.scale == "probability":
            points = f"{abs(100 * score):.0f} percentage points"
            side = "more" if score >= 0 else "less"
            return f"{about}, the model gives {name} {points} {side} than {other}."
        side = "above" if score >= 0 else "below"
        return f"{about}, the model's score for {name} is {decimal(abs(score))} {side} {other}."
    if explanation.scale == "probability":
        if _wins(explanation):
            return f"{about}, the model says {name} with {_percent(score)}."
        return f"{about}, the model gives {name} {_percent(score)}."
    if explanation.scale == "value":
        output_name = (
            "" if len(explanation.outputs) == 1 and not explanation.class_names else f" {name}"
        )
        return f"{about}, the model's value{output_name} is {decimal(score)}."
    return f"{about}, the model's score for {name} is {decimal(score)} ({scale_of(explanation)})."


def _about(explanation: ExplanationRecord) -> str:
    match explanation.kind:
        case "node":
            if not explanation.centres:
                return "For this node"
            return f"For {explanation.node_label(explanation.centres[0])}"
        case "nodes":
            return f"For {len(explanation.centres)} nodes together"
        case "edge":
            return f"For the {explanation.link_label}"
        case "graph":
            return "For this graph"
        case "model":
            return "On the whole"


def _wins(explanation: ExplanationRecord) -> bool:
    """Whether the target is what the model answers, as far as the record can tell."""
    if explanation.prediction > 0.5:
        return True
    return len(explanation.outputs) > 1 and explanation.prediction >= float(
        explanation.predictions.max()
    )


def _without(explanation: ExplanationRecord) -> str:
    """What it would say with the players switched off.

    Features and nodes play separate games that meet at the isolated node with all its features
    (relative efficiency), so base plus features is the answer without any neighbour.
    """
    games = {game.name for game in explanation.certificate.games}
    # Rescaled or selected credit no longer meets at the isolated node.
    changed = explanation.balance is not None or explanation.selection is not None
    features_played = (
        explanation.kind == "node" and explanation.node_credit.players > 0 and not changed
    )
    features = math.fsum(explanation.feature_values.tolist())
    if features_played and games <= {"features", "nodes"}:
        condition, score = "Without its neighbours", explanation.base + features
        totals = explanation.bases + explanation.feature_credit.values.sum(1)
    elif explanation.kind == "graph" and explanation.node_credit.players > 0:
        condition, score = "With all its nodes switched off", explanation.base
        totals = explanation.bases
    elif explanation.feature_credit.players and not explanation.node_credit.players:
        condition, score = "With the features that play switched off", explanation.base
        totals = explanation.bases
    else:
        condition, score = "With every player switched off", explanation.base
        totals = explanation.bases
    best = int(totals.argmax())
    other = explanation.outputs[best]
    if explanation.rather_than is not None:
        if explanation.scale == "probability":
            return f"{condition} the difference would be {_points(score)} points."
        return f"{condition} the difference would be {signed(score)}."
    if explanation.scale == "probability":
        answer = f"{_named(explanation, explanation.target)} {_percent(score)}"
        if len(explanation.outputs) > 1 and other != explanation.target:
            name = _named(explanation, other)
            return (
                f"{condition} it would say {name} with {_percent(float(totals[best]))} "
                f"and give {answer}."
            )
        return f"{condition} it would give {answer}."
    return f"{condition} it would be {decimal(score)}."


def _groups(explanation: ExplanationRecord) -> str:
    """The groups whose credit is certain, where there are many players."""
    certain = [group for group in folds(explanation) if group.sure and len(group.entries) > 1]
    certain.sort(key=lambda group: -abs(group.credit))
    if not certain:
        return ""
    words = [
        f"{'the ' if group.name[0].isdigit() else ''}{group.name} "
        f"{'add' if group.credit > 0 else 'take away'} {decimal(abs(group.credit))}"
        for group in certain[:MOST_NAMED]
    ]
    return f"Together, {_join_names(words)}."


def _who(explanation: ExplanationRecord, credited: list[Entry]) -> str:
    moved = math.fsum(abs(entry.credit) for entry in credited)
    certain = [entry for entry in credited if entry.sure]
    if not certain:
        return "These are estimates from so few calls that no player can be told from chance."
    helping = [entry for entry in certain if entry.credit > 0]
    against = [entry for entry in certain if entry.credit < 0]
    named = _most_important(helping or against)
    share = math.fsum(abs(entry.credit) for entry in named) / moved
    words = _join_names([f"{entry.name} ({signed(entry.credit)})" for entry in named])
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


def _cells(explanation: ExplanationRecord) -> str:
    """The features of nodes that matter most, where cells play."""
    cells = [] if explanation.cells is None else leading_cells(explanation, 2)
    words = [f"{cell_name(explanation, cell)} ({signed(cell.value)})" for cell in cells]
    return f"Of single features of nodes, {_join_names(words)} matter most." if words else ""


def _most_important(credited: list[Entry]) -> list[Entry]:
    """As few as carry half of this side's credit, three at the most."""
    total = math.fsum(abs(entry.credit) for entry in credited)
    named: list[Entry] = []
    for entry in credited[:MOST_NAMED]:
        if math.fsum(abs(e.credit) for e in named) >= 0.5 * total:
            break
        named.append(entry)
    return named


def _named(explanation: ExplanationRecord, output: int) -> str:
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


def _join_names(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _is_are(players: list[Entry]) -> str:
    return "is" if len(players) == 1 else "are"


def _capital(words: str) -> str:
    """The words with a capital letter, unless they begin with a name from the data."""
    ours = words.startswith(("node ", "feature ", "edge "))
    return words[:1].upper() + words[1:] if ours else words


# --- for experts -----------------------------------------------------------------------


def _for_experts(explanation: ExplanationRecord) -> list[str]:
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
    for kind, title in (("features", "Features"), ("nodes", "Nodes"), ("edges", "Edges")):
        players = entries(explanation, kind)  # type: ignore[arg-type]  # the three names of the tuple
        if players:
            lines.append(_account(title, players))
    lines += [
        f"Group: {group.name} {_value_with_error(group.credit, group.error)}"
        for group in folds(explanation)
    ]
    lines.extend(
        f"Game {game.name}: {game.players} players, "
        f"{game.status} by {game.mask}, {game.calls} model calls for "
        f"{game.coalitions} coalitions ({game.budget} allowed), "
        + ("no surrogate" if game.r2 is None else f"weighted R² {game.r2:.4f}")
        + ("" if game.model is None else f"; {game.model}")
        for game in certificate.games
    )
    lines.append(f"Certificate: {certificate.line()}")
    return lines


def _account(title: str, players: list[Entry], most: int = 10) -> str:
    shown, rest = leading(players, most) if any(e.sure for e in players) else ([], players)
    listed = ", ".join(f"{entry.name} {_with_error(entry)}" for entry in shown)
    if rest:
        others = f"{len(rest)} more" if shown else f"{len(rest)} players"
        listed += ", " * bool(shown)
        listed += f"{others} together {math.fsum(e.credit for e in rest):+.4g}"
    total = math.fsum(entry.credit for entry in players)
    unsure = sum(not entry.sure for entry in players)
    note = f"; {unsure} within two standard errors of 0" if unsure else ""
    return f"{title} ({len(players)}, sum {total:+.4g}{note}): {listed}"


def _with_error(entry: Entry) -> str:
    return _value_with_error(entry.credit, entry.error)


def _value_with_error(credit: float, error: float) -> str:
    if math.isnan(error):
        return f"{credit:+.4g}"
    return f"{credit:+.4g} ± {error:.2g}"
