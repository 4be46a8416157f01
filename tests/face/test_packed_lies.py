"""Packed folders that are broken or lie: each test is named after the lie."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge.errors import CloverError, ModelFormatError, UnsupportedModelError
from clover_edge.quant import CODEBOOK

Config = dict[str, Any]


class Folder:
    """A copy of a good packed folder that a test may spoil."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = next(iter(sorted(path.glob("*.safetensors"))))
        self.index = path / "model.safetensors.index.json"

    def edit(self, change: Callable[[Config], Any]) -> None:
        """Changes the "clover_edge" part of config.json."""
        file = self.path / "config.json"
        config = json.loads(file.read_text())
        change(config["clover_edge"])
        file.write_text(json.dumps(config))

    def edit_header(self, change: Callable[[Config], Any]) -> None:
        """Changes the header of the weights; padded to its old length, so that offsets stay."""
        data = self.weights.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
        assert len(text) == length
        self.weights.write_bytes(data[:8] + text + data[8 + length :])

    def refused(self, *words: str, error: type[CloverError] = ModelFormatError) -> CloverError:
        """The error of loading it; its text holds all the words."""
        with pytest.raises(error) as caught:
            clover_edge.load(self.path, threads=1).close()
        for word in words:
            assert word in str(caught.value), caught.value
        return caught.value


@pytest.fixture
def folder(packed: Path, tmp_path: Path) -> Folder:
    shutil.copytree(packed, tmp_path / "packed")
    return Folder(tmp_path / "packed")


def test_the_copy_is_good(folder: Folder) -> None:
    with clover_edge.load(folder.path) as model:
        assert model.generate("a", max_new_tokens=4).token_ids


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="nowhere: folder: does not exist"):
        clover_edge.load(tmp_path / "nowhere")


def test_a_file_is_no_folder(folder: Folder) -> None:
    with pytest.raises(ModelFormatError, match="is a file, not a folder"):
        clover_edge.load(folder.weights)


def test_an_unpacked_checkpoint(tiny: Callable[..., Any]) -> None:
    with pytest.raises(ModelFormatError, match=r"config\.json: clover_edge: .*clover-export"):
        clover_edge.load(tiny(seed=21).folder)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = b"<!DOCTYPE html><html><body>404</body></html>"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(POINTER, "Git LFS pointer"), (PAGE, "HTML"), (b"", "empty"), (b"{", "JSON"),
     (b"[]", "object"), (b'{"a": "\xff"}', "JSON"), (b"[" * 100_000, "JSON")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_json_file_that_is_something_else(
    folder: Folder, name: str, content: bytes, reason: str
) -> None:
    (folder.path / name).write_bytes(content)
    folder.refused(name, reason)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_a_file_is_missing(folder: Folder, name: str) -> None:
    (folder.path / name).unlink()
    folder.refused(name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(POINTER, "Git LFS pointer"), (PAGE, "HTML"), (b"", "empty"), (b"\0" * 7, "7 bytes"),
     (struct.pack("<Q", 2**62) + b"{}", "header"), (struct.pack("<Q", 500) + b"{}", "truncated")],
)  # fmt: skip
def test_weights_that_are_something_else(folder: Folder, content: bytes, reason: str) -> None:
    folder.weights.write_bytes(content)
    folder.refused(folder.weights.name, reason)


@pytest.mark.parametrize("cut", [1, 64, 10_000])
def test_weights_are_truncated(folder: Folder, cut: int) -> None:
    data = folder.weights.read_bytes()
    folder.weights.write_bytes(data[:-cut])
    folder.refused(folder.weights.name, "truncated")


def test_weights_are_too_long(folder: Folder) -> None:
    folder.weights.write_bytes(folder.weights.read_bytes() + b"\0")
    folder.refused(folder.weights.name, "1 bytes behind the last tensor")


def test_weights_are_missing(folder: Folder) -> None:
    folder.weights.unlink()
    folder.refused(folder.weights.name)


@pytest.mark.parametrize("version", [None, 0, -1, "1", True, 1.0, []])
def test_format_version_is_no_version(folder: Folder, version: Any) -> None:
    folder.edit(lambda ours: ours.update(format_version=version))
    folder.refused("config.json", "clover_edge.format_version", repr(version))


def test_format_version_is_newer(folder: Folder) -> None:
    folder.edit(lambda ours: ours.update(format_version=2))
    folder.refused("format_version", "2 is not supported", error=UnsupportedModelError)


@pytest.mark.parametrize("section", ["spec", "generation", "tensors"])
@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_a_section_is_no_object(folder: Folder, section: str, value: Any) -> None:
    folder.edit(lambda ours: ours.update({section: value}))
    folder.refused("config.json", f"clover_edge.{section}")


SPEC_LIES: list[tuple[str, Any]] = [
    ("hidden_size", 0),
    ("hidden_size", -64),
    ("hidden_size", 2**40),
    ("hidden_size", "64"),
    ("hidden_size", True),
    ("hidden_size", 96),
    ("num_layers", 3),
    ("num_layers", 10**9),
    ("vocab_size", 0),
    ("valid_vocab", 10**6),
    ("mask_token_id", 10**6),
    ("mask_token_id", -1),
    ("block_size", 0),
    ("num_heads", 0),
    ("num_kv_heads", 3),
    ("head_dim", 2**31),
    ("rotary_dim", 7),
    ("delta_v_heads", 3),
    ("conv_taps", 0),
    ("num_experts", 15),
    ("top_k", 17),
    ("top_k", 0),
    ("coreset_size", -1),
    ("rms_eps", float("nan")),
    ("rope_theta", 0),
    ("max_positions", 0),
    ("layer_types", None),
    ("unheard_of", 1),
]


@pytest.mark.parametrize(("field", "value"), SPEC_LIES)
def test_spec_lies(folder: Folder, field: str, value: Any) -> None:
    folder.edit(lambda ours: ours["spec"].update({field: value}))
    folder.refused()


@pytest.mark.parametrize("field", ["vocab_size", "layer_types", "block_size", "num_experts"])
def test_spec_misses_a_field(folder: Folder, field: str) -> None:
    folder.edit(lambda ours: ours["spec"].pop(field))
    folder.refused("config.json", f"spec.{field}")


@pytest.mark.parametrize(
    ("field", "value"),
    [("router", "hash"), ("mask", "full"), ("logit_shift", 2), ("preview_decay", True)],
)
def test_spec_asks_for_what_is_not_served(folder: Folder, field: str, value: Any) -> None:
    folder.edit(lambda ours: ours["spec"].update({field: value}))
    folder.refused("config.json", field, error=UnsupportedModelError)


def test_generation_default_out_of_range(folder: Folder) -> None:
    folder.edit(lambda ours: ours["generation"].update(threshold=3))
    with (
        clover_edge.load(folder.path) as model,
        pytest.raises(ModelFormatError, match=r"config\.json: generation: threshold: 3"),
    ):
        model.generate("a")


TENSOR = "layers.0.delta.in"
STACK = "layers.0.experts"


def entry(name: str, **values: Any) -> Callable[[Config], Any]:
    return lambda ours: ours["tensors"][name].update(values)


def part(**values: Any) -> Callable[[Config], Any]:
    return lambda ours: ours["tensors"][STACK]["parts"]["up"].update(values)


# A missing one, and some that are none; the stored bytes and group would fit.
BOOKS: list[Any] = [
    None,
    [],
    {},
    "0123456789abcdef",
    list(CODEBOOK[:15]),
    [*CODEBOOK, 127],
    list(reversed(CODEBOOK)),
    [*CODEBOOK[:15], CODEBOOK[14]],
    [-128, *CODEBOOK[1:]],
    [*CODEBOOK[:15], 128],
    [*CODEBOOK[:15], 106.0],
    [*CODEBOOK[:15], "106"],
    [*CODEBOOK[:15], None],
]
ENTRY_LIES: list[tuple[str, Callable[[Config], Any]]] = [
    (TENSOR, entry(TENSOR, scheme="int5")),
    (TENSOR, entry(TENSOR, scheme="int3")),
    (TENSOR, entry(TENSOR, scheme="int3", group=64)),
    (TENSOR, entry(TENSOR, scheme="codebook4")),
    (TENSOR, entry(TENSOR, codebook=list(CODEBOOK))),
    (TENSOR, entry(TENSOR, codebook=None)),
    (TENSOR, entry(TENSOR, scheme="codebook4", codebook=list(CODEBOOK))),
    ("final_norm", entry("final_norm", codebook=list(CODEBOOK))),
    (TENSOR, entry(TENSOR, scheme=None)),
    (TENSOR, entry(TENSOR, scheme=["int8"])),
    (TENSOR, entry(TENSOR, scheme="f32")),
    (TENSOR, entry(TENSOR, scheme="int4")),
    (TENSOR, entry(TENSOR, group=64)),
    (TENSOR, entry(TENSOR, group=0)),
    (TENSOR, entry(TENSOR, group="32")),
    (TENSOR, entry(TENSOR, layout=2)),
    (TENSOR, entry(TENSOR, shape=[64, 224])),
    (TENSOR, entry(TENSOR, shape=[2**40, 2**40])),
    (TENSOR, entry(TENSOR, shape=[0, 64])),
    (TENSOR, entry(TENSOR, shape=[-224, -64])),
    (TENSOR, entry(TENSOR, shape=[])),
    (TENSOR, entry(TENSOR, shape="x")),
    (TENSOR, entry(TENSOR, shape=[224.0, 64])),
    (TENSOR, lambda ours: ours["tensors"].update({TENSOR: []})),
    ("final_norm", entry("final_norm", scheme="bf16")),
    (STACK, entry(STACK, record_bytes=0)),
    (STACK, entry(STACK, record_bytes=63)),
    (STACK, entry(STACK, record_bytes=2**50)),
    (STACK, entry(STACK, record_bytes="x")),
    (STACK, entry(STACK, shape=[17])),
    (STACK, entry(STACK, shape=[16, 1])),
    (STACK, entry(STACK, parts=None)),
    (STACK, lambda ours: ours["tensors"][STACK]["parts"].pop("gate")),
    (f"{STACK}.up", part(offset=-64)),
    (f"{STACK}.up", part(offset=2**40)),
    (f"{STACK}.up", part(offset=1)),
    (f"{STACK}.up", part(offset=None)),
    (f"{STACK}.up", part(bytes=64)),
    (f"{STACK}.up", part(scheme="int8")),
    (f"{STACK}.up", part(shape=[64, 32])),
    (f"{STACK}.up", part(scheme="int3", group=64)),
    (f"{STACK}.up", part(scheme="int3", group=64, bytes=416)),
    *((f"{STACK}.up", part(scheme="codebook4", codebook=book)) for book in BOOKS),
]


@pytest.mark.parametrize("number", range(len(ENTRY_LIES)))
def test_a_tensor_entry_lies(folder: Folder, number: int) -> None:
    """The error names the file and the tensor."""
    name, change = ENTRY_LIES[number]
    folder.edit(change)
    error = folder.refused(name)
    assert isinstance(error, ModelFormatError)
    assert error.path.endswith((".json", ".safetensors"))


@pytest.mark.parametrize("recipe", ["int4-small", "codebook4"])
def test_codes_of_one_scheme_are_declared_to_be_anothers(
    tiny: Callable[..., Any], pack: Callable[..., Path], tmp_path: Path, recipe: str
) -> None:
    """int3 as int4 of the same group, codebook4 without its codebook: named, with the reason."""
    shutil.copytree(pack(tiny(hidden=128), recipe), tmp_path / "packed")
    folder = Folder(tmp_path / "packed")
    if recipe == "int4-small":
        folder.edit(part(scheme="int4"))
        folder.refused(f"{STACK}.up", "int4 of shape [64, 128] takes 4352")
    else:
        folder.edit(lambda ours: ours["tensors"][STACK]["parts"]["up"].pop("codebook"))
        folder.refused(f"{STACK}.up", "codebook () is not 16 ascending integers")


@pytest.mark.parametrize("name", ["layers.3.norm2", "embed", STACK])
def test_a_tensor_is_missing(folder: Folder, name: str) -> None:
    """From the description, from the index, and from both."""
    folder.edit(lambda ours: ours["tensors"].pop(name))
    folder.refused(name, "not described")


def test_a_tensor_is_missing_in_the_file(folder: Folder) -> None:
    folder.edit_header(lambda header: header.update({"__pad__.99": header.pop("final_norm")}))
    folder.refused("final_norm")


def test_a_tensor_is_in_another_file_than_the_index_says(folder: Folder) -> None:
    index = json.loads(folder.index.read_text())
    second = folder.path / "second.safetensors"
    shutil.copy(folder.weights, second)
    index["weight_map"]["embed"] = second.name
    folder.index.write_text(json.dumps(index))
    folder.refused("safetensors", "not so in the index")


def test_a_surplus_tensor(folder: Folder) -> None:
    extra = {"scheme": "f32", "layout": 1, "shape": [64]}
    folder.edit(lambda ours: ours["tensors"].update({"layers.0.extra": extra}))
    folder.refused("layers.0.extra", "is in no file")
    shutil.copy(folder.weights, folder.path / "unused.safetensors")  # this is nobody's concern
    folder.edit(lambda ours: ours["tensors"].pop("layers.0.extra"))
    clover_edge.load(folder.path).close()


@pytest.mark.parametrize("target", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", ""])
def test_the_index_points_outside(folder: Folder, target: str) -> None:
    index = json.loads(folder.index.read_text())
    index["weight_map"]["embed"] = target
    folder.index.write_text(json.dumps(index))
    folder.refused("weight_map", repr(target))


def spoil(folder: Folder, name: str, value: bytes, at: int = 0) -> None:
    from clover_edge.export.safetensors_header import read_header

    with folder.weights.open("r+b") as file:
        file.seek(read_header(folder.weights)[name].offset + at)
        file.write(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_norm_is_not_finite(folder: Folder, value: float) -> None:
    spoil(folder, "layers.1.norm1", struct.pack("<f", value))
    folder.refused("layers.1.norm1", "not finite")


@pytest.mark.parametrize("name", ["layers.1.experts", "layers.3.attn.out", "head", "embed"])
def test_a_scale_is_not_finite(folder: Folder, name: str) -> None:
    """Too many to be read at load: it is noticed in use, and no token comes of it."""
    nan = struct.pack("<e", float("nan")) * 16
    from clover_edge.export.safetensors_header import read_header

    size = read_header(folder.weights)[name].nbytes
    step = 32 + 8 * 32 if name == "layers.1.experts" else 32 + 16 * 32
    for at in range(0, size - step + 1, step):
        spoil(folder, name, nan, at)
    with (
        clover_edge.load(folder.path) as model,
        pytest.raises(CloverError, match="not finite"),
    ):
        model.generate("Hello", max_new_tokens=32)


def flips(size: int) -> Iterator[int]:
    yield from range(0, 8)
    yield from range(8, size, max(1, size // 40))


def test_any_byte_of_the_description(folder: Folder) -> None:
    """A flipped byte in config.json or the header loads or is refused; it never does worse."""
    config = folder.path / "config.json"
    for file in (config, folder.weights):
        good = file.read_bytes()
        (length,) = struct.unpack("<Q", good[:8])
        size = len(good) if file == config else 8 + length
        for at in flips(size):
            file.write_bytes(good[:at] + bytes([good[at] ^ 0x12]) + good[at + 1 :])
            try:
                clover_edge.load(folder.path, threads=1).close()
            except CloverError as error:
                assert str(folder.path) in str(error) or "spec" in str(error)
        file.write_bytes(good)
