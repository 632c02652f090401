"""README's picture of an H200 shows the figures of the list."""

import pytest

from docs import h200


@pytest.mark.parametrize("panel", h200.PANELS)
def test_the_picture_has_every_figure_of_the_list(panel):
    drawn = h200.PICTURE.read_text(encoding="utf-8")
    bars = h200.bars(panel)
    assert len(bars) >= 4 and f">{panel}<" in drawn
    for label, figure in bars.items():
        assert f">{h200.shown(figure):,.0f}<" in drawn, "make h200-picture"
        assert all(f">{line}<" in drawn for line in label.splitlines()), "make h200-picture"


def test_a_picture_of_other_figures_is_another(tmp_path, monkeypatch):
    figure = {"values": [1.0, 3000.0, 9000.0], "by_hand": "needs a GPU"}
    monkeypatch.setattr(
        h200, "figures", lambda: [{**figure, "bar": [panel, "quick"]} for panel in h200.PANELS]
    )
    h200.draw(tmp_path / "it.svg")
    drawn = (tmp_path / "it.svg").read_text(encoding="utf-8")
    assert drawn.count(">3,000<") == drawn.count(">quick<") == 2 and ">9,398<" not in drawn
