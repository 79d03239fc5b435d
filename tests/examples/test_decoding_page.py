"""The decoders on the page are those of the services that the other tests run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from sidecar.settings import load_settings
from tests.examples.services import EXAMPLES, LANGUAGES, ROOT

SOURCES: Final = {
    "python": "python/decode.py",
    "javascript": "javascript/decode.mjs",
    "go": "go/decode.go",
    "java": "java/KafkaRecord.java",
    "rust": "rust/src/decode.rs",
    "ruby": "ruby/decode.rb",
}
BLOCKS: Final = dict(
    re.findall(
        r"^```([a-z]+)\n(.*?)^```$",
        (ROOT / "docs/decoding.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)


def test_the_page_shows_every_language_once() -> None:
    assert BLOCKS.keys() == SOURCES.keys() == {each.folder for each in LANGUAGES}


@pytest.mark.parametrize("language", SOURCES)
def test_the_decoder_shown_is_the_one_that_runs(language: str) -> None:
    """To the end of the file: nothing of it is left out but what stands before."""
    block = BLOCKS[language]
    source = (EXAMPLES / SOURCES[language]).read_text(encoding="utf-8")
    assert source.endswith(block)
    assert "decode(" in block


def test_the_route_that_the_ruby_example_shows_is_the_one_it_is_tested_with(tmp_path: Path) -> None:
    page = (EXAMPLES / "ruby/README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert yaml.safe_load(shown)
    file = tmp_path / "sidecar.yaml"
    file.write_text(shown, encoding="utf-8")
    route = load_settings(file, {}).routes[0]
    (tested,) = (each for each in LANGUAGES if each.folder == "ruby")
    assert route.headers_always is tested.headers_always
    assert route.max_header_bytes == tested.max_header_bytes
