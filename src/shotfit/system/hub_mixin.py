"""Folders as huggingface_hub's mixin sees models: pushed and downloaded as other libraries' are.

Imported only where a hub is asked: its client takes longer to import than a prediction.
"""

from collections.abc import Callable
from pathlib import Path

import huggingface_hub
from huggingface_hub import ModelHubMixin


class PushedFolder(ModelHubMixin, library_name="shotfit"):
    """What writes the files that are pushed, with a model card among them."""

    def __init__(self, write: Callable[[Path], None]) -> None:
        self._write = write

    def _save_pretrained(self, save_directory: Path) -> None:
        self._write(save_directory)


class DownloadedFolder(ModelHubMixin, library_name="shotfit"):
    """The files of a repository, as they lie in the cache at `path`."""

    def __init__(self) -> None:
        self.path = Path()

    @classmethod
    def _from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride] no others are taken
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        files: tuple[str, ...] = (),
    ) -> "DownloadedFolder":
        found = cls()
        found.path = Path(
            huggingface_hub.snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=list(files),
            )
        )
        return found

    @classmethod
    def named(
        cls,
        name: str,
        *,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        files: tuple[str, ...],
    ) -> "DownloadedFolder":
        """The mixin's `from_pretrained`, also for what was downloaded without a `config.json`: the
        mixin asks for that first, and gives up where neither a hub nor its copy is there."""
        given = {
            "revision": revision,
            "cache_dir": cache_dir,
            "force_download": force_download,
            "local_files_only": local_files_only,
            "token": token,
            "files": files,
        }
        try:
            return cls.from_pretrained(name, **given)
        except huggingface_hub.errors.LocalEntryNotFoundError:
            return cls._from_pretrained(model_id=name, **given)
