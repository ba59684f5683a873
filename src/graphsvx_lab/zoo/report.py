"""Table of the trained models' accuracies next to the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, stdev

from graphsvx.utils.printable import markdown_table
from graphsvx_lab.zoo.card import Card
from graphsvx_lab.zoo.paper import ACCURACY, differences

PARTS = ("train", "val", "test")
COLUMNS = (
    "data set",
    "model",
    "train",
    "val",
    "test",
    "paper's test",
    "test over seeds",
    "seconds",
)


@dataclass(frozen=True)
class Row:
    """A row of the table: the cards of a model by seed, or why there are none."""

    dataset: str
    model: str
    cards: tuple[Card, ...] = ()
    seconds: float = 0.0
    missing: str = ""

    @property
    def paper(self) -> tuple[float, float, float] | None:
        """The paper's accuracies on train, validation and test, where it has them."""
        return ACCURACY.get((self.dataset, self.model))

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `COLUMNS`; accuracies as "ours (paper's)"."""
        paper = self.paper
        if not self.cards:
            empty = ["-" if paper is None else f"- ({value:.2f})" for value in paper or (0,) * 3]
            return (self.dataset, self.model, *empty, self.missing, "-", "-")
        first = self.cards[0].accuracy
        in_paper = ["" if paper is None else f" ({value:.2f})" for value in paper or (0,) * 3]
        ours = [f"{first[part]:.3f}{text}" for part, text in zip(PARTS, in_paper, strict=True)]
        return (
            self.dataset,
            self.model,
            *ours,
            self.verdict(),
            self.spread(),
            f"{self.seconds:.0f}",
        )

    def verdict(self) -> str:
        """Whether the paper's test accuracy is reached, rounded to its two digits."""
        if self.paper is None:
            return ""
        paper_test = self.paper[2]
        tests = [card.accuracy["test"] for card in self.cards]
        if round(tests[0], 2) >= paper_test:
            return "reached"
        if len(tests) > 1 and round(mean(tests), 2) >= paper_test:
            return "reached on average"
        return "missed"

    def spread(self) -> str:
        """Mean and standard deviation of the test accuracy over the seeds."""
        tests = [card.accuracy["test"] for card in self.cards]
        return f"{mean(tests):.3f} ± {stdev(tests):.3f}" if len(tests) > 1 else "-"


def markdown(rows: list[Row], command: str) -> str:
    """The page `docs/results/models.md`."""
    trained = [row for row in rows if row.cards]
    lines = [
        "# Trained models beside the paper's",
        "",
        f"Made by `{command} --table docs/results/models.md`. Accuracies are those of the first",
        "seed, the paper's in brackets; then whether the paper's test accuracy is reached (rounded",
        "to its two digits), and mean ± standard deviation of the test accuracy over the seeds,",
        "each with its own graph (or noise), split and initial weights. Seconds are for one seed,",
        "loading included, on one CPU thread.",
        "",
        markdown_table(COLUMNS, [row.cells() for row in rows]),
        "",
        "## Settings that are not the paper's",
        "",
        "The paper's: three blocks of 20 units with ReLU and one linear layer, Adam with rate",
        "0.001, 1,000 epochs; citation models as in its appendix. It does not name the blocks'",
        "convolution: with constant features it has to be a sum over neighbours (GraphConv).",
        "Everywhere, the weights with the lowest validation loss are kept (looked at every 5",
        "epochs), gradients are clipped to norm 2, and the last layer has no ReLU, so that logits",
        "may be negative. Settings were chosen by validation on other seeds (100 and up).",
        "",
        markdown_table(
            ("data set", "model", "setting (paper's → ours)"),
            [(row.dataset, row.model, _changes(row)) for row in trained],
        ),
    ]
    if trained:
        versions = ", ".join(f"{k} {v}" for k, v in trained[0].cards[0].versions.items())
        lines += ["", f"Versions: {versions}."]
    return "\n".join(lines) + "\n"


def _changes(row: Row) -> str:
    changes = differences(row.cards[0].settings, row.dataset)
    return (
        ", ".join(f"{key} {theirs} → {ours}" for key, (theirs, ours) in changes.items()) or "none"
    )
