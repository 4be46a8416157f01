"""Checkpoint folders that are quantised already: which layout, and its tensors as plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, UnsupportedModelError
from ..fields import Fields
from .base import FLOAT_DTYPES, Files, RowSource, RowTensor, Source
from .compressed import Compressed, Float8, Mlx
from .int32_codes import PARTS, Awq, Gptq
from .view import View

SUPPORTED = ("gptq", "awq", "auto-round", "compressed-tensors", "fp8", "MLX (affine)")
Decoded = dict[str, RowTensor]
Reader = Callable[[Files, Fields], tuple[Decoded, set[str]]]


def quantisation(config: Mapping[str, Any], path: Path) -> Fields | None:
    """The quantisation's own settings in a ``config.json``, if there are any."""
    outer = Fields(path, config)
    for fields in (outer, outer.section("text_config")):
        for key in ("quantization_config", "quantization"):
            if fields.get(key) is not None:
                return fields.section(key)
    return None


def decode(files: Files, settings: Fields | None) -> Source:
    """The folder's tensors under their plain names, whatever it is quantised with.

    Raises UnsupportedModelError naming the method that is not read, CheckpointError naming the
    tensor whose companions are missing or do not fit it.
    """
    if settings is None:
        _refuse_unsaid(files)
        return files
    reader = _reader(settings)
    decoded, used = reader(files, settings)
    if not decoded:
        method = settings.get("quant_method", "MLX")
        raise settings.refuse("quant_method", f"is {method!r}, but no tensor is quantised so")
    plain = {name: name for name in files.tensors if name not in used}
    if reader is _mlx:
        decoded = dict(_mlx_experts(decoded))
        plain = {_mlx_name(name): name for name in plain}
    return RowSource(decoded, files, plain)


def _reader(settings: Fields) -> Reader:
    method = settings.get("quant_method")
    if method is None and settings.get("group_size") is not None and settings.get("bits"):
        return _mlx
    readers: dict[Any, Reader] = {
        "gptq": _gptq,
        "awq": _awq,
        "auto-round": _auto_round,
        "compressed-tensors": _compressed,
        "fp8": _fp8,
    }
    if isinstance(method, str) and method in readers:
        return readers[method]
    raise _unsupported(settings, "quant_method", method, SUPPORTED)


def _unsupported(
    settings: Fields, key: str, value: Any, known: tuple[object, ...]
) -> UnsupportedModelError:
    listed = ", ".join(map(str, known))
    return UnsupportedModelError(
        f"{settings.path}: {key}: {value!r} is not read; supported: {listed}"
    )


def _refuse_unsaid(files: Files) -> None:
    """Packed tensors in a folder whose configuration says nothing of them."""
    for name, info in files.tensors.items():
        if name.endswith((".qweight", ".weight_packed", ".weight_scale_inv")):
            reason = "is quantised, and config.json has no quantization_config"
            raise CheckpointError(str(info.file), name, reason)


def _bases(files: Files, ending: str) -> Iterator[str]:
    return (name.removesuffix(ending) for name in files.tensors if name.endswith(ending))


def _require(files: Files, base: str, holder: str, *parts: str) -> None:
    for part in parts:
        if f"{base}.{part}" not in files.tensors:
            file = files.tensors[f"{base}.{holder}"].file
            raise CheckpointError(str(file), f"{base}.{part}", f"is missing beside {base}.{holder}")


def _dtype(files: Files, name: str, *wanted: str) -> None:
    info = files.tensors[name]
    if info.dtype not in wanted:
        reason = f"dtype {info.dtype} is not {' or '.join(wanted)}"
        raise CheckpointError(str(info.file), name, reason)


def _bits(settings: Fields, *known: int) -> int:
    bits = settings.get("bits", settings.get("w_bit"))
    if type(bits) is not int or bits not in known:
        raise _unsupported(settings, "bits", bits, known)
    return bits


def _group(settings: Fields) -> int:
    key = "group_size" if "group_size" in settings.values else "q_group_size"
    return settings.integer(key, 128, low=-1)


def _int32_set(files: Files, base: str) -> set[str]:
    """Names of a GPTQ or AWQ tensor's parts, their types checked."""
    _require(files, base, "qweight", "qzeros", "scales")
    for part in ("qweight", "qzeros"):
        _dtype(files, f"{base}.{part}", "I32")
        if len(files.tensors[f"{base}.{part}"].shape) != 2:
            file, name = files.tensors[f"{base}.{part}"].file, f"{base}.{part}"
            raise CheckpointError(str(file), name, "is no matrix")
    _dtype(files, f"{base}.scales", *FLOAT_DTYPES)
    if len(files.tensors[f"{base}.scales"].shape) != 2:
        raise CheckpointError(
            str(files.tensors[f"{base}.scales"].file), f"{base}.scales", "is no matrix"
        )
    return {f"{base}.{part}" for part in PARTS} & set(files.tensors)


def _gptq(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    bits, group = _bits(settings, 4, 8), _group(settings)
    form = settings.get("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise _unsupported(settings, "checkpoint_format", form, ("gptq", "gptq_v2"))
    if settings.get("dynamic"):
        raise _unsupported(settings, "dynamic", settings.get("dynamic"), (None,))
    decoded: Decoded = {}
    used: set[str] = set()
    for base in _bases(files, ".qweight"):
        used |= _int32_set(files, base)
        version = 2 if form == "gptq_v2" else 1
        decoded[f"{base}.weight"] = Gptq(files, base, bits, group, version)
    return decoded, used


def _awq(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    bits, group = _bits(settings, 4), _group(settings)
    version = settings.get("version", "gemm")
    if str(version).lower() != "gemm":
        raise _unsupported(settings, "version", version, ("gemm",))
    decoded: Decoded = {}
    used: set[str] = set()
    for base in _bases(files, ".qweight"):
        used |= _int32_set(files, base)
        decoded[f"{base}.weight"] = Awq(files, base, bits, group)
    return decoded, used


def _auto_round(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    packing = settings.get("packing_format", "auto_round:auto_gptq")
    if packing in ("auto_round:auto_gptq", "auto_gptq"):
        return _gptq(files, settings)
    if packing in ("auto_round:auto_awq", "auto_awq"):
        return _awq(files, settings)
    known = ("auto_round:auto_gptq", "auto_round:auto_awq")
    raise _unsupported(settings, "packing_format", packing, known)


def _compressed(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    form = settings.get("format")
    known = ("pack-quantized", "int-quantized", "float-quantized")
    forms = [form, *(group.get("format") for group in _config_groups(settings))]
    for each in forms:
        if each is not None and each not in (*known, "mixed-precision"):
            raise _unsupported(settings, "format", each, known)
    decoded: Decoded = {}
    used: set[str] = set()
    for base in _bases(files, ".weight_packed"):
        _require(files, base, "weight_packed", "weight_scale", "weight_shape")
        _dtype(files, f"{base}.weight_packed", "I32")
        shape, bits = _packed_shape(files, settings, base)
        decoded[f"{base}.weight"] = Compressed(files, base, shape, bits)
    for base in _bases(files, ".weight_scale"):
        if f"{base}.weight_packed" in files.tensors:
            continue
        _require(files, base, "weight_scale", "weight")
        _dtype(files, f"{base}.weight", "I8", "F8_E4M3")
        n, k = _matrix(files, f"{base}.weight")
        if files.tensors[f"{base}.weight"].dtype == "I8":
            decoded[f"{base}.weight"] = Compressed(files, base, (n, k), 8)
        else:
            block = _block(settings)
            decoded[f"{base}.weight"] = Float8(
                files, f"{base}.weight", f"{base}.weight_scale", block
            )
    for name in files.tensors:
        base, _, part = name.rpartition(".")
        if f"{base}.weight" in decoded and (part.startswith(("weight_", "input_"))):
            used.add(name)
    for base in _bases(files, ".weight_scale"):
        _dtype(files, f"{base}.weight_scale", *FLOAT_DTYPES)
    return decoded, used | {name for name in files.tensors if name in decoded}


def _config_groups(settings: Fields) -> list[Fields]:
    groups = settings.section("config_groups")
    return [groups.section(key) for key in groups.values]


def _block(settings: Fields) -> tuple[int, int] | None:
    """The block of a scale, where compressed-tensors' strategy is by blocks."""
    for group in _config_groups(settings):
        weights = group.section("weights")
        if weights.get("strategy") == "block":
            return _pair(weights, "block_structure")
    return None


def _pair(fields: Fields, key: str) -> tuple[int, int]:
    value = fields.get(key, [128, 128])
    good = isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
    if not good or min(value) < 1:
        raise fields.refuse(key, f"{value!r} is no pair of sizes")
    return value[0], value[1]


def _matrix(files: Files, name: str) -> tuple[int, int]:
    info = files.tensors[name]
    if len(info.shape) != 2:
        raise CheckpointError(str(info.file), name, f"shape {list(info.shape)}: no matrix")
    return info.shape[0], info.shape[1]


def _packed_shape(files: Files, settings: Fields, base: str) -> tuple[tuple[int, int], int]:
    """Shape of the matrix and bits of a code, from ``weight_shape`` and the words of a row."""
    name = f"{base}.weight_shape"
    shape_info = files.tensors[name]
    _dtype(files, name, "I64", "I32")
    if shape_info.shape != (2,):
        raise CheckpointError(str(shape_info.file), name, "does not hold two sizes")
    n, k = (int(size) for size in files.read_raw(name, (0, 1))[0])
    rows, words = _matrix(files, f"{base}.weight_packed")
    for bits in (4, 8):
        if rows == n and words == -(-k * bits // 32):
            return (n, k), bits
    stated = {group.section("weights").get("num_bits") for group in _config_groups(settings)}
    if stated - {4, 8}:
        raise _unsupported(settings, "num_bits", min(stated - {4, 8}, key=str), (4, 8))
    reason = f"says [{n}, {k}]; weight_packed has shape {[rows, words]}"
    raise CheckpointError(str(shape_info.file), name, reason)


def _fp8(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    form = settings.get("fmt", "e4m3")
    if form not in ("e4m3", "float8_e4m3fn"):
        raise _unsupported(settings, "fmt", form, ("e4m3",))
    decoded: Decoded = {}
    used: set[str] = set()
    for name, info in files.tensors.items():
        base = name.removesuffix(".weight")
        if info.dtype != "F8_E4M3":
            continue
        scale, block = f"{name}_scale_inv", None
        if scale in files.tensors:
            block = _pair(settings, "weight_block_size")
        elif f"{name}_scale" in files.tensors:  # of the whole tensor
            scale = f"{name}_scale"
        else:
            raise CheckpointError(str(info.file), scale, f"is missing beside {name}")
        _dtype(files, scale, *FLOAT_DTYPES)
        if len(info.shape) not in (2, 3):
            raise CheckpointError(str(info.file), name, f"shape {list(info.shape)}: no matrix")
        decoded[name] = Float8(files, name, scale, block)
        used |= {name, scale, f"{base}.input_scale", f"{base}.activation_scale"}
    return decoded, used


def _mlx(files: Files, settings: Fields) -> tuple[Decoded, set[str]]:
    mode = settings.get("mode", "affine")
    if mode != "affine":
        raise _unsupported(settings, "mode", mode, ("affine",))
    decoded: Decoded = {}
    used: set[str] = set()
    for base in _bases(files, ".scales"):
        own = settings.values.get(base)
        fields = Fields(settings.path, own) if isinstance(own, dict) else settings
        _require(files, base, "scales", "weight", "biases")
        _dtype(files, f"{base}.weight", "U32")
        for part in ("scales", "biases"):
            _dtype(files, f"{base}.{part}", *FLOAT_DTYPES)
        decoded[f"{base}.weight"] = Mlx(files, base, _bits(fields, 4, 8), _group(fields))
        used |= {f"{base}.{part}" for part in ("weight", "scales", "biases")}
    for name, info in files.tensors.items():
        if info.dtype == "U32" and name not in used:
            scales = f"{name.removesuffix('.weight')}.scales"
            raise CheckpointError(str(info.file), scales, f"is missing beside {name}")
    return decoded, used


def _mlx_name(name: str) -> str:
    """MLX puts the text model of a vision model under ``language_model``."""
    return name.removeprefix("language_model.")


def _mlx_experts(decoded: Decoded) -> Iterator[tuple[str, RowTensor]]:
    """MLX's stacks ``mlp.switch_mlp.gate_proj.weight [E, rows, columns]``, expert by expert."""
    for name, tensor in decoded.items():
        shape = tensor.info.shape
        stem, switch, part = _mlx_name(name).partition(".switch_mlp.")
        if not switch or len(shape) != 3:
            yield _mlx_name(name), tensor
            continue
        for expert in range(shape[0]):
            view = View(tensor, shape[1:], first=expert * shape[1])
            yield f"{stem}.experts.{expert}.{part}", view
