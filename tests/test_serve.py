"""The HTTP API: every kind of query, every limit, every error; in this process unless a test needs a real server."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

import modalhash as mh
from modalhash.codes import hamming, unpack
from modalhash.datasets import Dataset
from modalhash.exceptions import ConstantBitsWarning, InputError, MissingExtraError
from modalhash.features import GIST, FeaturePipeline, TagVectorizer
from modalhash.serve import SearchService, Settings, create_app
from modalhash.serve.server import bind, with_own_hosts
from modalhash.serve.words import TextView

CLASSES = {"cat": "pet feline fur", "car": "road wheel engine", "cloud": "rain sky weather", "music": "sound song note"}
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><path d="M0 0h{0}v4z"/></svg>'


def picture(kind: int, rng: np.random.Generator) -> np.ndarray:
    """Stripes, whose direction and width are the class."""
    y, x = np.mgrid[:32, :32]
    wave = np.sin((x * (kind % 2) + y * (1 - kind % 2)) * (0.4 + 0.5 * (kind // 2)) + rng.uniform(0, 6))
    return (127 + 90 * wave + rng.normal(0, 12, (32, 32))).clip(0, 255).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def things():
    """60 items of four classes, with words, drawings and pictures that features are made of."""
    rng = np.random.default_rng(0)
    kinds = np.arange(60) % 4
    pictures = [picture(int(kind), rng) for kind in kinds]
    names = list(CLASSES)
    texts = [f"{names[kind]} {CLASSES[names[kind]]} thing{i}" for i, kind in enumerate(kinds)]
    steps = {"text": TagVectorizer(), "image": GIST(size=32, orientations=(4, 4), blocks=2)}
    features = FeaturePipeline(steps).fit({"text": texts, "image": []})
    data = Dataset(
        features.transform({"text": texts, "image": pictures}),
        labels=[names[kind] for kind in kinds],
        ids=np.array([f"thing-{i}" for i in range(60)]),
        columns={
            "title": [f"{names[kind].title()} {i}" for i, kind in enumerate(kinds)],
            "text": texts,
            "svg": [SVG.format(1 + kind) if i else "" for i, kind in enumerate(kinds)],
        },
        splits={"database": np.arange(10, 60)},
        name="things",
        provenance={"source": "made up"},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantBitsWarning)  # four classes do not fill 16 bits
        models = [mh.DMH(bits, n_iter=60, random_state=0).fit(data.views, labels=data.labels) for bits in (16, 12)]
    for model in models:
        model.attach(features)
    return data, models, pictures


@pytest.fixture(scope="module")
def service(things):
    data, models, _ = things
    return SearchService(models, data=data)


class Client:
    """Ask an application in this process, without a network."""

    def __init__(self, app):
        self.loop = asyncio.new_event_loop()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.run_until_complete(self.http.aclose())
        self.loop.close()

    def get(self, path, **options):
        return self.loop.run_until_complete(self.http.get(path, **options))

    def post(self, path, **options):
        return self.loop.run_until_complete(self.http.post(path, **options))

    def together(self, paths):
        """Ask for several at once."""

        async def all_of_them():
            return await asyncio.gather(*(self.http.get(path) for path in paths))

        return self.loop.run_until_complete(all_of_them())


def client_of(service, **settings):
    return Client(create_app(service, Settings(**settings)))


@pytest.fixture(scope="module")
def client(service):
    with client_of(service, max_k=30, max_radius=5, max_text=50, max_body=100_000) as client:
        yield client


def detail(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


# ------------------------------------------------------------------------------------------------------------ searching


def test_text_finds_pictures_of_its_class(client):
    answer = client.get("/search", params={"text": "cat pet", "k": 5}).json()
    assert answer["database"] == "image"  # the other direction, unless told otherwise
    assert [hit["labels"] for hit in answer["hits"]] == [["cat"]] * 5
    assert answer["query"]["known"] == ["cat", "pet"]


def test_hits_are_those_of_brute_force(client, things):
    data, (hasher, _), _ = things
    query = hasher.encode_raw("text", ["rain road"])
    distance = hamming(query, hasher.encode("image", data.views["image"]))[0]
    order = np.lexsort((np.arange(60), distance))[:20]
    answer = client.get("/search", params={"text": "rain road", "k": 20, "database": "image"}).json()
    assert [hit["id"] for hit in answer["hits"]] == order.tolist()
    assert [hit["distance"] for hit in answer["hits"]] == distance[order].tolist()
    assert answer["query"]["code"] == query.tobytes().hex()
    for hit in answer["hits"]:  # the codes account for the distances, bit by bit
        a, b = (
            unpack(np.frombuffer(bytes.fromhex(c), np.uint8)[None], 16) for c in (answer["query"]["code"], hit["code"])
        )
        assert int((a ^ b).sum()) == hit["distance"]


@pytest.mark.parametrize("database", ["image", "text", "fused"])
def test_an_item_finds_its_like_in_every_database(client, database):
    answer = client.get("/search", params={"item": 7, "view": "text", "database": database, "k": 8}).json()
    assert {hit["labels"][0] for hit in answer["hits"]} == {"music"}
    # among codes of its own view an item does not find itself; elsewhere its own picture is a fair find
    assert (7 in [hit["id"] for hit in answer["hits"]]) <= (database != "text")


def test_an_item_searches_by_a_database_that_is_no_view(client):
    answer = client.get("/search", params={"item": 7, "view": "fused", "database": "fused", "k": 3}).json()
    assert answer["query"]["view"] == "fused"
    assert 7 not in [hit["id"] for hit in answer["hits"]]


def test_vector_and_code_give_the_same_as_the_item(client, things):
    data, _, _ = things
    by_item = client.get("/search", params={"item": 3, "view": "image", "database": "text"}).json()
    vector = data.views["image"][3].astype(float).tolist()
    by_vector = client.post("/search", json={"vector": vector, "view": "image", "database": "text"}).json()
    by_code = client.post("/search", json={"code": by_item["query"]["code"], "database": "text"}).json()
    assert by_item["hits"] == by_vector["hits"] == by_code["hits"]


def test_an_uploaded_picture_finds_words_and_pictures(client, things):
    new = picture(2, np.random.default_rng(99))
    for database in ("text", "image"):
        answer = client.post("/search/image", params={"database": database, "k": 5}, files={"image": png(new)}).json()
        assert answer["query"]["by"] == "image"
        assert [hit["labels"] for hit in answer["hits"]] == [["cloud"]] * 5
    code = client.post("/encode/image", files={"image": png(new)}).json()["query"]["code"]
    assert code == answer["query"]["code"] == things[1][0].encode_raw("image", [new]).tobytes().hex()


def test_bits_choose_the_model(client, things):
    answer = client.get("/search", params={"text": "cat", "bits": 12}).json()
    assert answer["query"]["n_bits"] == 12
    assert answer["query"]["code"] == things[1][1].encode_raw("text", ["cat"]).tobytes().hex()
    assert "no codes of 20 bits; there are 12, 16" in detail(
        client.get("/search", params={"text": "cat", "bits": 20}), 422
    )


def test_ranking_by_scores_is_the_index_s_own(client, things):
    data, (hasher, _), _ = things
    index = mh.HammingIndex(16).add(hasher.encode("image", data.views["image"]))
    X = hasher.raw_features("text", ["rain road"])
    found = index.search(hasher.encode("text", X), 10, scores=hasher.project("text", X))[0]
    answer = client.get("/search", params={"text": "rain road", "rank": "scores", "database": "image"}).json()
    assert [hit["id"] for hit in answer["hits"]] == found.ids.tolist()
    assert answer["hits"][0]["score"] == pytest.approx(float(found.scores[0]), abs=1e-3)
    assert "no scores" in detail(client.get("/search", params={"code": "0000", "rank": "scores"}), 422)


def test_lookup_counts_all_and_lists_some(client, things):
    data, (hasher, _), _ = things
    distance = hamming(hasher.encode_raw("text", ["cat"]), hasher.encode("text", data.views["text"]))[0]
    values = {"text": "cat", "database": "text", "radius": 4, "limit": 3}
    answer = client.get("/lookup", params=values).json()
    assert answer["total"] == int((distance <= 4).sum()) > 3
    assert len(answer["hits"]) == 3
    assert answer == client.post("/lookup", json=values).json()


def test_encode(client, things):
    answer = client.post("/encode", json={"text": "sky"}).json()
    code = things[1][0].encode_raw("text", ["sky"])
    assert answer["bits"] == "".join(str(int(bit)) for bit in unpack(code, 16)[0])


# ---------------------------------------------------------------------------------------------------------------- words


def test_unknown_words_find_nothing_and_say_so(client):
    answer = client.get("/search", params={"text": "xyzzy plugh"}).json()
    assert (answer["hits"], answer["total"]) == ([], 0)
    assert answer["query"]["unknown"] == ["xyzzy", "plugh"]
    assert client.get("/lookup", params={"text": "xyzzy"}).json()["total"] == 0


def test_a_word_being_typed_is_completed_only_when_asked_for(client):
    asked = client.get("/search", params={"text": "rain clo", "complete": True}).json()["query"]
    assert (asked["text"], asked["known"], asked["suggestions"]) == ("rain cloud", ["rain", "cloud"], ["cloud"])
    assert client.get("/search", params={"text": "rain clo"}).json()["query"]["unknown"] == ["clo"]
    # after a space the word is finished
    assert client.get("/search", params={"text": "rain clo ", "complete": True}).json()["query"]["unknown"] == ["clo"]


def test_suggestions_begin_alike_and_come_by_frequency():
    items = ["cat car", "cat", "cart", "car dog", "cat", "do", "Σίσυφος"]
    step = TagVectorizer().fit(items)
    view = TextView([step], step.transform(items))
    assert view.suggest("ca") == ["cat", "car", "cart"]  # 3, 2 and 1 items
    assert view.suggest("ca", limit=1) == ["cat"]
    assert view.suggest("σ") == ["σίσυφος"]
    assert view.suggest("") == view.suggest("z") == []


def test_expansion_is_rocchio_by_hand():
    # Rows (unit length): 0 = (1, 1, 0)/sqrt 2, 1 = (0, 1, 1)/sqrt 2, 2 = (0, 0, 1); the query is (1, 0, 0).
    # Only row 0 is like it (1/sqrt 2). Sum of the unit vectors: (1 + 1/sqrt 2, 1/sqrt 2, 0), scaled to the usual length
    # of a row before scaling, sqrt 2: the ratio of the two words is 1 + sqrt 2.
    items = ["a1 b1", "b1 c1", "c1"]
    step = TagVectorizer().fit(items)
    read = TextView([step], step.transform(items)).read("a1", expand=2)
    assert read.examples == [0]
    x = read.features.toarray()[0]
    assert x[0] / x[1] == pytest.approx(1 + 2**0.5)
    assert x[2] == 0
    assert np.linalg.norm(x) == pytest.approx(2**0.5, rel=1e-6)


def test_expansion_names_its_examples(client):
    asked = client.get("/search", params={"text": "thing5", "expand": 2}).json()["query"]
    assert asked["examples"][0]["id"] == 5
    assert len(asked["examples"]) == 1  # nothing else carries that word
    assert "go with a text" in detail(client.get("/search", params={"item": 1, "view": "text", "expand": 2}), 422)


# ---------------------------------------------------------------------------------------------------------------- items


def test_items(client):
    assert client.get("/items/2").json() == {
        "id": 2,
        "name": "thing-2",
        "title": "Cloud 2",
        "text": "cloud rain sky weather thing2",
        "labels": ["cloud"],
        "picture": "/items/2/picture",
        "flat": True,
    }
    listed = client.get("/items", params={"start": 50, "limit": 30}).json()
    assert (listed["total"], [item["id"] for item in listed["items"]]) == (60, list(range(50, 60)))
    spread = client.get("/items", params={"start": 1, "step": 20, "limit": 30}).json()["items"]
    assert [item["id"] for item in spread] == [1, 21, 41]
    assert client.get("/items", params={"start": 10**15}).json()["items"] == []
    for missing in (-1, 60, 2**63 - 1):
        assert "no item" in detail(client.get(f"/items/{missing}"), 404)
    assert detail(client.get(f"/items/{2**63}"), 422)
    assert detail(client.get("/items/cat"), 422)


def test_pictures_are_served_by_id_and_shut_in(client):
    answer = client.get("/items/3/picture")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.text == SVG.format(4)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "no picture" in detail(client.get("/items/0/picture"), 404)  # item 0 has none
    assert client.get("/items/0").json()["picture"] is None
    assert "no picture" in detail(client.get("/items/999/picture"), 404)


def test_picture_files_stay_below_their_folder(things, tmp_path):
    data, models, pictures = things
    folder = tmp_path / "pictures"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.png").write_bytes(png(pictures[0]))
    (tmp_path / "secret.png").write_bytes(png(pictures[1]))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "notes.txt").write_text("not a picture")
    names = ["sub/a.png", "../secret.png", "link.png", str(tmp_path / "secret.png"), "notes.txt", "gone.png"]
    rows = data.take(range(6))
    rows = Dataset(rows.views, ids=rows.ids, columns={"file": names})
    service = SearchService(models[0], data=rows, pictures=folder)
    with client_of(service) as client:
        good = client.get("/items/0/picture")
        assert (good.status_code, good.headers["content-type"], good.content) == (200, "image/png", png(pictures[0]))
        for item in range(1, 6):
            detail(client.get(f"/items/{item}/picture"), 404)
    with pytest.raises(InputError, match="not a folder"):
        SearchService(models[0], data=rows, pictures=tmp_path / "none")
    with pytest.raises(InputError, match="column 'file'"):
        SearchService(models[0], data=data, pictures=folder)


# ---------------------------------------------------------------------------------------------------- limits and errors


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "exactly one of text, item, code or vector; got none"),
        ({"text": "cat", "item": 1}, "got text, item"),
        ({"text": "cat", "k": 0}, "k: Input should be greater than or equal to 1"),
        ({"text": "cat", "k": 31}, "at most 30 items"),
        ({"text": "cat", "k": "many"}, "k: Input should be a valid integer"),
        ({"text": "c" * 51}, "at most 50 characters"),
        ({"text": "cat", "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"text": "cat", "database": "sound"}, "no database 'sound'; there are 'image', 'text', 'fused'"),
        ({"text": "cat", "view": "image"}, "needs a view of texts: 'text'; got 'image'"),
        ({"item": 1}, "say which view: 'image', 'text'"),
        ({"item": 1, "view": "smell"}, "no view 'smell'"),
        ({"code": "xy"}, "hexadecimal"),
        ({"code": "00"}, "16 bits has 4 hexadecimal digits; got 2"),
        ({"code": "0000", "view": "text"}, "of no view"),
        ({"code": "00f0", "bits": 12}, "bits set beyond bit 12"),
        ({"text": "cat", "rank": "luck"}, "rank: Input should be 'distance' or 'scores'"),
        ({"text": "cat", "expand": 21}, "expand: Input should be less than or equal to 20"),
    ],
)
def test_bad_searches(client, values, message):
    assert message in detail(client.get("/search", params=values), 422)
    if "many" not in str(values):
        assert message in detail(client.post("/search", json=values), 422)


def test_unknown_items_are_not_found(client):
    assert "no item 60" in detail(client.get("/search", params={"item": 60, "view": "text"}), 404)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ('{"vector": [1, 2], "view": "image"}', 422, "has 2 columns; the model was fitted with 32"),
        ('{"vector": [], "view": "image"}', 422, "column"),
        ('{"vector": [NaN], "view": "image"}', 422, "vector.0: Input should be a finite number"),
        ('{"vector": [1e999], "view": "image"}', 422, "finite"),
        ('{"vector": "abc", "view": "image"}', 422, "valid list"),
        ('{"text": "cat"', 422, "JSON"),
        ("[]", 422, "body"),
        ("[" * 50_000, 400, "parsing the body"),
        ('{"item": ' + "9" * 5000 + "}", 400, "parsing the body"),
        ('{"text": "\\ud800"}', 422, "valid string"),
    ],
)
def test_bad_bodies(client, body, status, message):
    answer = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["detail"]


def test_vectors_that_overflow_are_refused(client):
    answer = client.post("/search", json={"vector": [1e308] * 32, "view": "image"})
    assert detail(answer, 422)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"radius": 6}, "at most 5 differing bits"), ({"radius": -1}, "radius"), ({"limit": 31}, "at most 30 items")],
)
def test_lookup_limits(client, values, message):
    assert message in detail(client.get("/lookup", params={"text": "cat", **values}), 422)


def test_defaults_keep_to_tight_limits(service):
    with client_of(service, max_k=3, max_radius=1) as client:
        assert len(client.get("/search", params={"text": "cat"}).json()["hits"]) == 3
        assert len(client.get("/items").json()["items"]) == 3
        assert all(hit["distance"] <= 1 for hit in client.get("/lookup", params={"text": "cat"}).json()["hits"])


def test_bodies_that_are_too_large(client):
    big = {"vector": [0.5] * 60_000, "view": "image"}
    assert "larger than 100000 bytes" in detail(client.post("/search", json=big), 413)

    async def parts():  # without a declared length
        for _ in range(20):
            yield b"x" * 10_000

    assert "larger than" in detail(client.post("/search", content=parts()), 413)
    assert client.get("/healthz").status_code == 200


def bomb(width, height):
    """A PNG of a few bytes that declares a huge picture."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"not a picture", "cannot be read"),
        (png(np.zeros((8, 8), np.uint8))[:40], "cannot be read"),
        (SVG.format(1).encode(), "cannot be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be read"),
        (bomb(6000, 6000), "6000 x 6000 pixels; at most 25000000"),
        (bomb(60_000, 60_000), "too many pixels"),
    ],
    ids=["empty", "text", "cut", "svg", "eps", "large", "huge"],
)
def test_bad_pictures(client, content, message):
    for route in ("/search/image", "/encode/image"):
        assert message in detail(client.post(route, files={"image": content}), 422)


def test_uploads_need_a_file(client):
    assert "image: Field required" in detail(client.post("/search/image"), 422)
    assert "image" in detail(client.post("/search/image", data={"image": "text"}), 422)
    assert "at most 30" in detail(
        client.post("/search/image?k=31", files={"image": png(np.zeros((9, 9), np.uint8))}), 422
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_kind_of_picture_is_read_or_refused(client, kind):
    tried = 0
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"):
        out = io.BytesIO()
        try:
            Image.new(mode, (20, 30)).save(out, kind)
        except (OSError, KeyError, ValueError):
            continue  # the format has no such mode
        answer = client.post("/encode/image", files={"image": out.getvalue()})
        assert answer.status_code == (422 if kind == "TIFF" else 200), (mode, answer.text)
        tried += 1
    assert tried >= 2


def test_routes_that_are_not_there(client):
    assert client.get("/nothing").status_code == 404
    assert client.post("/items").status_code == 405
    for path in ("/docs", "/redoc", "/../etc/passwd", "/page/../settings.py", "/search/"):
        assert client.get(path).status_code == 404


def test_a_slow_search_is_answered_503(service, monkeypatch):
    release = threading.Event()
    with client_of(service, timeout=0.2, workers=1) as client:
        monkeypatch.setattr(type(service), "of_text", lambda *_, **__: release.wait(20))
        started = time.perf_counter()
        answer = client.get("/search", params={"text": "cat"})
        assert "too busy" in detail(answer, 503)
        assert answer.headers["retry-after"] == "1"
        assert time.perf_counter() - started < 5
        assert client.get("/healthz").status_code == 200  # needs no worker
        release.set()


# --------------------------------------------------------------------------------------------------------------- access


def test_token(service):
    with client_of(service, token="secret-token") as client:
        for path in ("/search?text=cat", "/about", "/metrics", "/items/1/picture", "/openapi.json", "/nothing"):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret-token"}):
                answer = client.get(path, headers=headers)
                assert "token is needed" in detail(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
            good = client.get(path, headers={"authorization": "Bearer secret-token"})
            assert good.status_code == (404 if path == "/nothing" else 200)
        for path in ("/", "/page.js", "/page.css", "/icon.svg", "/healthz"):
            assert client.get(path).status_code == 200
    for bad in ("", "two words", "naïve", "new\nline"):
        with pytest.raises(InputError, match="token must be visible ASCII"):
            Settings(token=bad)


def test_host_names(service):
    settings = with_own_hosts(Settings(), "127.0.0.1")
    with Client(create_app(service, settings)) as client:
        for host in ("127.0.0.1", "localhost:9", "[::1]:8000", "LOCALHOST"):
            assert client.get("/healthz", headers={"host": host}).status_code == 200
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
            assert "does not answer to the name" in detail(client.get("/healthz", headers={"host": host}), 421)
    assert with_own_hosts(Settings(), "0.0.0.0").hosts is None
    assert "mine" in with_own_hosts(Settings(hosts=("mine",)), "localhost").hosts


def test_every_answer_carries_the_headers(client):
    for path in ("/", "/search?text=cat", "/search", "/nothing", "/metrics", "/items/1/picture"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
    assert client.get("/about").headers["cache-control"] == "no-store"


# ---------------------------------------------------------------------------------------------------- the server itself


def test_about(client):
    about = client.get("/about").json()
    assert (about["name"], about["items"], about["credit"]) == ("things", 60, "made up")
    assert [one["bits"] for one in about["collections"]] == [16, 12]
    first = about["collections"][0]
    assert first["databases"] == {"image": 60, "text": 60, "fused": 60}
    assert {view["name"]: view["kind"] for view in first["views"]} == {"image": "image", "text": "text"}
    assert about["limits"] == {"k": 30, "radius": 5, "text": 50, "body": 100_000, "pixels": 25_000_000}


def test_metrics_are_prometheus_text(service):
    with client_of(service) as client:
        for _ in range(3):
            client.get("/search", params={"text": "cat"})
        client.get("/search", params={"k": 0})
        client.get("/nothing")
        client.get("/items/5")
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    line = re.compile(r'[a-z_]+(\{([a-z]+="[^"\\]*",?)+\})? [0-9.e+]+')
    text = answer.text.splitlines()
    assert all(one.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(one) for one in text)
    assert 'modalhash_requests_total{route="/search",method="GET",status="200"} 3' in text
    assert 'modalhash_requests_total{route="/search",method="GET",status="422"} 1' in text
    assert 'modalhash_requests_total{route="/items/{item_id}",method="GET",status="200"} 1' in text  # not one per item
    assert 'modalhash_requests_total{route="(none)",method="GET",status="404"} 1' in text
    assert 'modalhash_request_seconds_bucket{route="/search",le="+Inf"} 4' in text
    assert 'modalhash_items{database="fused",bits="12"} 60' in text
    assert any(one.startswith("process_resident_memory_bytes ") for one in text)
    counts = [
        int(one.rsplit(" ", 1)[1]) for one in text if one.startswith('modalhash_request_seconds_bucket{route="/search"')
    ]
    assert counts == sorted(counts)


def test_openapi_says_what_can_go_wrong_and_how_much_may_be_asked(client):
    described = client.get("/openapi.json").json()
    for path, routes in described["paths"].items():
        for route in routes.values():
            assert {"200", "422", "413"} <= set(route["responses"]), path
    parameters = {p["name"]: p["schema"] for p in described["paths"]["/search"]["get"]["parameters"]}
    assert parameters["k"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 30}
    body = described["components"]["schemas"]["LookupBody"]["properties"]
    assert (body["radius"]["anyOf"][0]["maximum"], body["text"]["anyOf"][0]["maxLength"]) == (5, 50)


def test_the_page_is_served_from_the_package(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    linked = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert {"/page.css", "/page.js", "/icon.svg"} <= set(linked)
    for path in linked:  # nothing from elsewhere: it works offline
        assert path.startswith("/")
        assert client.get(path).status_code == 200
    tag = client.get("/page.js").headers["etag"]
    assert client.get("/page.js", headers={"if-none-match": tag}).status_code == 304
    for path in ("/page.js", "/page.css"):
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", client.get(path).text)


# ---------------------------------------------------------------------------------------------------------- the service


def test_an_index_without_a_data_set(things):
    data, (hasher, _), _ = things
    index = mh.HammingIndex(16).add(
        hasher.encode("text", data.views["text"]), ids=np.arange(60) * 10, payload={"title": data.columns["title"]}
    )
    with client_of(SearchService(hasher, indexes=[("text", index)])) as client:
        answer = client.get("/search", params={"item": 70, "view": "text", "k": 3}).json()
        assert answer["hits"][0]["title"].startswith("Music")
        assert client.get("/items/70").json()["title"] == "Music 7"
        assert [item["id"] for item in client.get("/items?limit=3").json()["items"]] == [0, 10, 20]
        assert "no item 71" in detail(client.get("/items/71"), 404)
        assert "no item 71" in detail(client.get("/search", params={"item": 71, "view": "text"}), 404)
        assert "no code of item 70 for 'image'" in detail(
            client.get("/search", params={"item": 70, "view": "image"}), 404
        )
        assert client.get("/search", params={"text": "cat"}).json()["hits"]  # the only database there is


def test_a_split_is_all_that_is_encoded(things):
    data, models, _ = things
    service = SearchService(models[0], data=data, split="database")
    found = service.search(service.of_item(2, view="text"), "text", 60)
    assert sorted(found.ids) == list(range(10, 60))


def test_what_cannot_be_served(things):
    data, (hasher, short), _ = things
    codes = hasher.encode("text", data.views["text"])
    index = mh.HammingIndex(16).add(codes)
    for arguments, message in [
        (([],), "needs a model"),
        (([hasher, hasher],), "two models have 16 bits"),
        ((hasher,), "nothing to search"),
    ]:
        with pytest.raises(InputError, match=message):
            SearchService(*arguments)
    with pytest.raises(InputError, match="codes of 16 bits; the models have 12"):
        SearchService(short, indexes=[("text", index)])
    with pytest.raises(InputError, match="two indexes of 16 bits are called 'text'"):
        SearchService(hasher, indexes=[("text", index), ("text", index)])
    with pytest.raises(InputError, match="holds id 60; the data set has 60 rows"):
        SearchService(hasher, indexes=[("text", mh.HammingIndex(16).add(codes, ids=np.arange(1, 61)))], data=data)


def test_a_length_without_a_database_says_so(things):
    data, models, _ = things
    index = mh.HammingIndex(16).add(models[0].encode("text", data.views["text"]))
    with client_of(SearchService(models, indexes=[("text", index)])) as client:
        assert "no database of 12 bits" in detail(client.get("/search", params={"text": "cat", "bits": 12}), 422)
        assert client.get("/search", params={"text": "cat"}).status_code == 200


def test_an_empty_index_finds_nothing(things):
    hasher = things[1][0]
    service = SearchService(hasher, indexes=[("text", mh.HammingIndex(16))])
    service.warm_up()
    query = service.of_code("0000")
    assert service.search(query, "text", 5).ids == service.lookup(query, "text", 2).ids == []


def test_a_model_without_features_says_what_it_cannot_do(small):
    hasher = mh.LSH(n_bits=8, random_state=0).fit(small.views)
    service = SearchService(hasher, data=small)
    with client_of(service) as client:
        assert "carries no features for texts" in detail(client.get("/search", params={"text": "cat"}), 422)
        assert "carries no features for images" in detail(
            client.post("/search/image", files={"image": png(np.zeros((9, 9), np.uint8))}), 422
        )
        assert client.get("/search", params={"item": 3, "view": "text"}).status_code == 200
        assert client.get("/about").json()["collections"][0]["views"][0]["kind"] == "vector"


def test_requests_at_the_same_time_get_the_answers_of_one(client):
    paths = [f"/search?item={item}&view=text&database=image" for item in range(20)]
    alone = [client.get(path).json()["hits"] for path in paths]
    assert [answer.json()["hits"] for answer in client.together(paths * 5)] == alone * 5


def test_a_missing_extra_says_the_pip_line(monkeypatch):
    import modalhash.serve as package

    monkeypatch.delitem(vars(package), "create_app", raising=False)
    monkeypatch.delitem(sys.modules, "modalhash.serve.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[serve\]'"):
        package.create_app


def test_a_port_in_use():
    with bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(InputError, match="cannot listen on"):
            bind("127.0.0.1", first.getsockname()[1])
    with pytest.raises(InputError, match=r"cannot listen on no\.such\.host\.invalid"):
        bind("no.such.host.invalid", 0)


# ------------------------------------------------------------------------------------------------------- a real process


@pytest.fixture(scope="module")
def saved(things, tmp_path_factory):
    data, models, _ = things
    folder = tmp_path_factory.mktemp("saved")
    data.save(folder / "data.npz")
    for model in models:
        model.save(folder / f"model-{model.n_bits}")
    return folder


@pytest.fixture
def process(saved):
    """Start ``modalhash serve`` on a free port; gives (address, process)."""
    running = []

    def start(*words, **environment):
        command = [sys.executable, "-m", "modalhash", "serve", "--port", "0", *map(str, words)]
        one = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        running.append(one)
        said = one.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert address, said
        return address.group(), one

    yield start
    for one in running:
        one.kill()
        one.wait()
        one.stderr.close()


@pytest.mark.service
def test_a_real_server_answers_and_stops(process, saved):
    address, one = process(saved / "model-16", saved / "model-12", "--data", saved / "data.npz")
    with httpx.Client(base_url=address) as client:
        answer = client.get("/search", params={"text": "cat", "k": 5}).json()
        assert [hit["labels"] for hit in answer["hits"]] == [["cat"]] * 5
        assert client.get("/healthz").json() == {"status": "ok"}
        assert "server" not in client.get("/healthz").headers
        assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 421
    one.send_signal(signal.SIGINT)
    assert one.wait(10) == 0


@pytest.mark.service
def test_a_real_server_with_a_token_and_an_index(process, saved, tmp_path):
    index = tmp_path / "index"
    command = [sys.executable, "-m", "modalhash", "index", "build", index, "--model", saved / "model-16"]
    subprocess.run([*command, "--data", saved / "data.npz", "--use", "image"], check=True, capture_output=True)
    words = (saved / "model-16", "--index", f"image={index}", "--max-k", 7)
    address, _ = process(*words, MODALHASH_TOKEN="from-the-environment")
    assert httpx.get(f"{address}/about").status_code == 401
    headers = {"authorization": "Bearer from-the-environment"}
    about = httpx.get(f"{address}/about", headers=headers).json()
    assert about["collections"][0]["databases"] == {"image": 60}
    assert about["limits"]["k"] == 7


@pytest.mark.service
def test_a_body_that_does_not_come_is_cut_off(process, saved):
    import socket

    address, _ = process(saved / "model-16", "--data", saved / "data.npz", "--timeout", "0.5")
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        assert slow.recv(200).startswith(b"HTTP/1.1 408")
    assert httpx.get(f"{address}/healthz").status_code == 200


@pytest.mark.service
def test_schemathesis_finds_no_server_error(process, saved, tmp_path):
    address, one = process(saved / "model-16", saved / "model-12", "--data", saved / "data.npz")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{address}/openapi.json",
        "--checks",
        checks,
    ]
    command += ["--max-examples", "50", "--seed", "1", "--generation-database", "none", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:]
    assert one.poll() is None
    counted = httpx.get(f"{address}/metrics").text
    assert 'status="200"' in counted
    assert not re.findall(r'status="5\d\d"', counted)
    assert json.loads(httpx.get(f"{address}/openapi.json").text)["openapi"].startswith("3.")
