"""Builds the wheel with maturin, which puts the native library into it, and lowroad-onnx beside the library.

maturin builds one crate, and the program that evaluates ONNX models is another: cargo builds it into the package's
folder, from which maturin takes it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # noqa: F401 - hooks that pip calls
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

PROJECT = Path(__file__).resolve().parent
PROGRAM = "lowroad-onnx"
# Where pyproject.toml includes it from.
IN_PACKAGE = PROJECT / "lowroad" / PROGRAM


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    _build_program(config_settings)
    try:
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        IN_PACKAGE.unlink()


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    # It stays, as the library does: both are used where they are.
    _build_program(config_settings)
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _build_program(config_settings: Any) -> None:
    """With the profile that maturin is told to use, if it is given as --profile=NAME."""
    told = maturin.get_maturin_pep517_args(config_settings)
    profile = [argument for argument in told if argument.startswith("--profile=")] or ["--release"]
    command = ["cargo", "build", "--locked", "--package", "onnx", *profile]
    command.append("--message-format=json-render-diagnostics")
    built = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    shutil.copy(programs[-1], IN_PACKAGE)
    subprocess.run(["strip", IN_PACKAGE], check=True)
