"""Folders to the Hugging Face hub, and from it, through its client's mixin for models."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shotfit.errors import DataError, UsageError
from shotfit.system.paths import mistyped_folder


@dataclass(frozen=True)
class Push:
    """How to upload, by the names that `ModelHubMixin.push_to_hub` has for it."""

    private: bool | None = None
    """Of a new repository; None for what its owner has set."""
    token: str | None = None
    branch: str | None = None
    create_pr: bool | None = None
    commit_message: str | None = None


@dataclass(frozen=True)
class Pull:
    """How to download, by the names that `ModelHubMixin.from_pretrained` has for it."""

    revision: str | None = None
    token: str | bool | None = None
    cache_dir: str | Path | None = None
    force_download: bool = False
    local_files_only: bool = False


def upload(
    write: Callable[[Path], None],
    repository: str,
    push: Push | None = None,
    config: Mapping[str, Any] | None = None,
) -> str:
    """Uploads what `write` puts into a folder to a model repository, which is made where there is
    none, as its branch is; the address of the commit, or of the pull request. `config` becomes
    `config.json` where `write` makes none: by requests for that file a hub counts downloads.

    Raises:
        UsageError: for a name that cannot be a repository's, or when nobody is logged in.
        DataError: when the hub cannot be reached or refuses.
    """
    from huggingface_hub import CommitInfo, HfApi
    from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError

    from shotfit.system.hub_mixin import PushedFolder

    push = push or Push()
    try:
        if push.branch is not None and not push.create_pr:
            api = HfApi(token=push.token)
            name = api.create_repo(repository, private=push.private, exist_ok=True).repo_id
            api.create_branch(name, branch=push.branch, exist_ok=True)
        found = PushedFolder(write).push_to_hub(
            repository,
            config=None if config is None else dict(config),
            commit_message=push.commit_message or "A classifier made with ShotFit",
            private=push.private,
            token=push.token,
            branch=push.branch,
            create_pr=push.create_pr,
        )
    except HFValidationError as error:
        raise UsageError(f"{repository!r} cannot be a repository (user/name): {error}") from None
    except LocalTokenNotFoundError:
        raise UsageError(
            "Nobody is logged in to the Hugging Face hub: `hf auth login`, or set HF_TOKEN."
        ) from None
    except (DataError, UsageError):  # of `write`
        raise
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot upload to {repository!r}: {error}") from error
    proposed = found.pr_url if isinstance(found, CommitInfo) else None
    return str(proposed or found)


def download(name: str, pull: Pull, files: Sequence[str]) -> Path:
    """The folder of a repository's `files`, as it lies in the cache.

    Raises:
        DataError: when there is no such repository, or the hub cannot be reached.
    """
    mistyped = mistyped_folder(name)
    if mistyped is not None:
        raise DataError(f"There is no saved classifier {name!r}. {mistyped}")
    from huggingface_hub.errors import HFValidationError

    from shotfit.system.hub_mixin import DownloadedFolder

    try:
        return DownloadedFolder.named(name, files=tuple(files), **dataclasses.asdict(pull)).path
    except HFValidationError:
        raise DataError(f"There is no saved classifier {name!r}.") from None
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot download the classifier {name!r}: {error}") from error


def card_header(*, results: Sequence[Mapping[str, Any]] = (), **facts: Any) -> str:
    """What stands above a model card, as the hub reads it: `facts` by the hub's names, `results` as
    its `EvalResult` has them."""
    import huggingface_hub

    measured = [huggingface_hub.EvalResult(**result) for result in results]
    data = huggingface_hub.ModelCardData(**facts, eval_results=measured or None)
    return f"---\n{data.to_yaml()}\n---\n"
