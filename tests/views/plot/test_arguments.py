"""Arguments of plots that cannot be drawn are refused by their names."""

from __future__ import annotations

import inspect

import pytest
from matplotlib import pyplot as plt

from graphsvx.errors import InputError
from graphsvx.views import plot
from tests import records
from tests.views.plot.looks import many

DRAWN = {
    "beeswarm": lambda: (many(2),),
    "cell_heatmap": lambda: (records.house(),),
    "convergence": lambda: (many(2),),
    "heatmap": lambda: (many(2),),
    "noise_kde": lambda: ({"a": [1, 2]},),
    "save": lambda: (records.house(), "a.png"),
    "share": lambda: ([records.house()], {400}),
}
ARGUMENTS = [
    (name, argument)
    for name in plot.__all__
    for argument, parameter in inspect.signature(getattr(plot, name)).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_an_argument_of_another_type_is_refused_by_name(name, argument):
    draw = getattr(plot, name)
    given = DRAWN.get(name, lambda: (records.house(),))()
    arguments = inspect.signature(draw).bind(*given).arguments | {argument: object()}
    with pytest.raises(InputError, match=rf"\b{argument} must be"):
        draw(**arguments)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_every_argument_is_described(name, argument):
    assert f"\n    {argument}: " in inspect.getdoc(getattr(plot, name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ax": "heatmap"}, "ax must be matplotlib axes or None, got 'heatmap'; .*kind='heatmap'"),
        ({"kind": ["bars"]}, r"kind must be text or None, got \['bars'\]"),
        ({"kind": "bars", "top": 2.5}, "top must be an integer of at least 1, got 2.5"),
        ({"kind": "bars", "top": 0}, "top must be an integer of at least 1, got 0"),
        ({"kind": "graph", "seed": -1}, "seed must be an integer of at least 0"),
        ({"kind": "graph", "largest": -1.0}, "largest must be a number of at least 0 or None"),
        ({"kind": "graph", "layout": "ring"}, "layout must be 'force', 'hops', 'molecule' or None"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        records.house().plot(**options)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.heatmap("abc"), "explanations must be a list of explanations, got 'abc'"),
        (lambda: plot.heatmap([]), "at least one explanation, got none"),
        (lambda: plot.share(many(2), {1.5, 2}), "motif must be node ids"),
        (lambda: plot.heatmap(many(2), labels="ab"), "labels must be a list .* or None, got 'ab'"),
        (lambda: plot.noise_kde({"a": ["x"]}), r"counts of 'a' must be numbers, got \['x'\]"),
        (lambda: plot.noise_kde({"a": [1]}, bandwidth=0), "bandwidth must be a number above 0"),
    ],
)
def test_lists_of_something_else_are_refused(draw, message):
    with pytest.raises(InputError, match=message):
        draw()
    plt.close("all")
