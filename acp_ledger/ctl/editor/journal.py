"""What `editor setup` did, one line per setup, so that `editor undo` can take it back exactly.

What must not be broken here: a line is on disk before the settings change; a line that cannot be read is passed over
and never guessed; and nobody else may read the file, for an agent's command may hold a secret.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acp_ledger import paths
from acp_ledger.ctl.editor.plans import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Record(NamedTuple):
    """A setup: of which file, the digests of it before (None: there was no file) and after, and the backup."""

    file: str
    before: str | None
    after: str
    backup: str | None
    changes: tuple[Change, ...]


def digest(content: bytes) -> str:
    """Give the digest by which the journal knows a content."""
    return hashlib.sha256(content).hexdigest()


class Journal:
    """The journal of a user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = paths.state_directory(environ, os.getuid())
        self.path = Path(self._folder, "editors.jsonl")

    def add(self, editor: str, record: Record) -> None:
        """Note a setup that is about to be made."""
        changes = [change._asdict() for change in record.changes]
        self._write({"do": "setup", "editor": editor, **record._asdict(), "changes": changes})

    def withdraw(self, editor: str, record: Record) -> None:
        """Note that the setup noted last was not made after all."""
        self._write({"do": "withdraw", "editor": editor, "file": record.file})

    def close(self, editor: str, file: Path) -> None:
        """Note that everything that was set up in a file was taken back, as far as it could be."""
        self._write({"do": "undo", "editor": editor, "file": str(file)})

    def open_records(self, editor: str, file: Path) -> list[Record]:
        """Give the setups of a file that were not taken back, oldest first."""
        records: list[Record] = []
        for line in self._lines():
            if line.get("editor") != editor or line.get("file") != str(file):
                continue
            if line.get("do") == "undo":
                records.clear()
            elif line.get("do") == "withdraw":
                del records[-1:]
            elif (record := _read(line)) is not None:
                records.append(record)
        return records

    def files(self, editor: str) -> list[Path]:
        """Give the files of an editor in which something is set up, the last one first."""
        named = [str(line["file"]) for line in self._lines() if line.get("editor") == editor and "file" in line]
        return [Path(file) for file in dict.fromkeys(reversed(named)) if self.open_records(editor, Path(file))]

    def _write(self, line: dict[str, Any]) -> None:
        paths.make_private_directory(self._folder, os.getuid())
        text = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **line})
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # A program that was killed may have left half a line, which ours must not become a part of.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * torn + text.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.split("\n"):
            try:
                read = json.loads(line)
            except ValueError:
                continue  # the last words of a program that was killed
            if isinstance(read, dict):
                yield read


def _read(line: dict[str, Any]) -> Record | None:
    try:
        changes = tuple(Change.read(each) for each in line["changes"])
        return Record(line["file"], line["before"], line["after"], line["backup"], changes)
    except (KeyError, TypeError, ValueError):
        return None
