"""Icons and clip art: rendered drawings with words."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from modalhash.datasets import load_icons, load_openclipart, openclipart
from modalhash.datasets.openclipart import read_drawing
from modalhash.exceptions import InputError, MissingExtraError, ModelFormatError
from modalhash.features import CorruptImageWarning, render_svg

pytest.importorskip("resvg_py")
pytest.importorskip("yaml")

SQUARE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><path d="M{x} 2h4v4h-4z"/></svg>'


def write_icons(root, broken=()):
    folder = root / "metadata"
    folder.mkdir()
    icons = {}
    for i in range(20):
        svg = "<svg" if i in broken else SQUARE.format(x=i % 6)
        icons[f"icon-{i:02d}"] = {
            "label": f"Icon {'Sun' if i % 2 else 'Moon'}",
            "search": {"terms": ["night sky", "北京"] if i % 4 else []},
            "styles": ["solid"] if i else ["brands"],
            "svg": {"solid": {"raw": svg}, "brands": {"raw": svg}},
        }
    (folder / "icons.json").write_text(json.dumps(icons), encoding="utf-8")
    (folder / "categories.yml").write_text(
        "astronomy:\n  label: Astronomy & Sky\n  icons: ["
        + ", ".join(f"icon-{i:02d}" for i in range(1, 19))
        + "]\nodd:\n  label: Odd\n  icons: [icon-01, icon-03, not-there]\n"
    )
    return root


def test_icons_from_a_folder(tmp_path):
    data = load_icons(write_icons(tmp_path), size=32)
    # icon-00 is a brand, icon-19 has no category
    assert data.ids.tolist() == [f"icon-{i:02d}" for i in range(1, 19)]
    assert data.label_names == ["Astronomy & Sky", "Odd"]
    assert data.labels[:, 1].tolist() == [1, 0, 1] + [0] * 15
    assert data.feature_names["text"] == ["icon", "moon", "night", "sky", "sun", "北京"]
    assert data.views["text"][[0]].toarray().tolist() == [[1, 0, 1, 1, 1, 1]]
    assert data.views["image"].shape == (18, 512)
    assert data.columns["svg"][0].startswith("<svg")
    assert data.columns["terms"][0] == "night sky; 北京"
    assert data.provenance["left_out"] == 1


def test_an_icon_that_cannot_be_drawn_is_listed_and_left_out(tmp_path):
    with pytest.warns(CorruptImageWarning, match="1 of 18"):
        data = load_icons(write_icons(tmp_path, broken={5}), size=32)
    assert "icon-05" not in data.ids
    assert len(data.provenance["skipped"]) == 1


def test_icons_say_what_is_missing(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no metadata/icons\.json.*pypi\.org/project/fontawesomefree"):
        load_icons(tmp_path)
    write_icons(tmp_path)
    with pytest.raises(InputError, match="no icon of style 'duotone'"):
        load_icons(tmp_path, style="duotone")
    (tmp_path / "metadata" / "categories.yml").write_text("a: [")
    with pytest.raises(ModelFormatError, match=r"categories\.yml is not whole YAML"):
        load_icons(tmp_path)
    (tmp_path / "metadata" / "categories.yml").unlink()
    with pytest.raises(InputError, match=r"categories\.yml does not exist"):
        load_icons(tmp_path)
    (tmp_path / "metadata" / "icons.json").write_text("{")
    with pytest.raises(ModelFormatError, match=r"icons\.json is not whole JSON"):
        load_icons(tmp_path)
    monkeypatch.setattr("modalhash.datasets.icons.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[demo\]"):
        load_icons()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("fontawesomefree") is None, reason="the package fontawesomefree is not installed")
def test_the_real_icons():
    data = load_icons(size=64)
    assert len(data) > 1300
    assert data.labels.shape[1] == 68
    assert data.provenance["skipped"] == []
    assert np.isfinite(data.views["image"]).all()


# --- clip art --------------------------------------------------------------------------------------------------

DRAWING = """<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10">
<metadata><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:cc="http://web.resource.org/cc/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><cc:Work rdf:about=""><dc:title>{title}</dc:title>
<dc:subject><rdf:Bag>{keywords}</rdf:Bag></dc:subject></cc:Work></rdf:RDF></metadata>
<rect x="2" y="2" width="8" height="6" fill="#336"/></svg>
"""


def drawing(title, *keywords):
    return DRAWING.format(title=title, keywords="".join(f"<rdf:li>{k}</rdf:li>" for k in keywords))


def write_clipart(root):
    for i in range(12):
        folder = root / "animals" / ("birds" if i % 3 else "fish")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02d}.svg").write_text(drawing(f"Tier {i}", "animal", "wing" if i % 3 else "fin", "clip_art"))
    (root / "flags").mkdir()
    for i in range(5):
        (root / "flags" / f"{i}.svg").write_text(drawing("Flag", "flag", "北京"))
    (root / "flags" / "empty.svg").write_text(drawing("No keyword", "unsorted"))
    (root / "flags" / "broken.svg").write_text("<svg><g></svg>")
    (root / "rare").mkdir()
    (root / "rare" / "one.svg").write_text(drawing("Alone", "thing"))
    return root


def test_clip_art_from_a_folder(tmp_path, caplog):
    data = load_openclipart(write_clipart(tmp_path), min_label=4, size=32)
    assert data.label_names == ["animals", "animals/birds", "animals/fish", "flags"]
    assert len(data) == 17  # without the one that has no keyword, the broken one, and the one in a rare folder
    first = data.ids.tolist().index("animals/birds/01.svg")
    assert data.labels[first].tolist() == [1, 1, 0, 0]
    assert data.columns["text"][first] == "animal wing"
    assert data.columns["title"][first] == "Tier 1"
    assert data.feature_names["text"] == ["animal", "fin", "flag", "wing", "北京"]
    assert data.provenance["without_keyword_or_folder"] == 1
    assert data.provenance["without_label"] == 1
    assert data.provenance["skipped"][0][0] == "flags/broken.svg"
    assert "broken.svg" in caplog.text


def test_clip_art_limit_and_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(openclipart, "DEBIAN", tmp_path / "none")
    with pytest.raises(InputError, match="apt install openclipart-svg"):
        load_openclipart()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no \.svg"):
        load_openclipart(tmp_path / "empty")
    root = tmp_path / "art"
    root.mkdir()
    write_clipart(root)
    assert load_openclipart(root, min_label=2, size=32, limit=10).provenance["drawings"] == 10
    with pytest.raises(InputError, match="lower min_label"):
        load_openclipart(root, min_label=100, size=32)
    monkeypatch.setattr(openclipart, "DEBIAN", root)
    assert len(load_openclipart(min_label=4, size=32)) == 17


def test_reading_one_drawing(tmp_path):
    (tmp_path / "a.svg").write_bytes(drawing("T", "k").replace("UTF-8", "ISO-8859-1").encode("latin-1"))
    svg, title, keywords = read_drawing(tmp_path / "a.svg")
    assert (title, keywords) == ("T", ["k"])
    assert render_svg(svg, 16).shape == (16, 16, 3)


@pytest.mark.parametrize(("width", "height"), [(30, 10), (10, 30), (10, 10), (1, 999)])
def test_rendering_fits_and_centres(width, height):
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}"/></svg>'
    )
    dark = render_svg(svg, 48)[..., 0] < 128
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    long, short = max(len(rows), len(columns)), min(len(rows), len(columns))
    assert long == 48
    assert abs(short - max(1, 48 * min(width, height) / max(width, height))) <= 1
    assert abs(rows[0] - (47 - rows[-1])) <= 1
    assert abs(columns[0] - (47 - columns[-1])) <= 1


def test_rendering_refuses_what_is_no_drawing():
    with pytest.raises(InputError, match="cannot be rendered"):
        render_svg("not svg", 16)


@pytest.mark.parametrize("unit", ["", "px", "pt", "mm", "cm", "in"])
def test_drawings_sized_in_any_unit_are_rendered(unit):
    size = f'width="40{unit}" height="20{unit}"'
    column = render_svg(f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect {size}/></svg>', 32)[:, 16, 0]
    assert column[:6].tolist() == [255] * 6
    assert column[10:22].tolist() == [0] * 12
    assert column[-6:].tolist() == [255] * 6
