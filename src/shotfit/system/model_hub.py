"""Folders to the Hugging Face hub, and from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shotfit.errors import DataError, UsageError
from shotfit.system.paths import mistyped_folder


def upload(
    folder: Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Uploads a folder to a model repository, which is made where there is none; its address.

    Raises:
        UsageError: for a name that cannot be a repository's, or when nobody is logged in.
        DataError: when the hub cannot be reached or refuses.
    """
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError

    api = huggingface_hub.HfApi()
    try:
        url = api.create_repo(repository, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            commit_message=message or "A classifier made with ShotFit",
        )
    except HFValidationError as error:
        raise UsageError(f"{repository!r} cannot be a repository (user/name): {error}") from None
    except LocalTokenNotFoundError:
        raise UsageError(
            "Nobody is logged in to the Hugging Face hub: `hf auth login`, or set HF_TOKEN."
        ) from None
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot upload to {repository!r}: {error}") from error
    return str(url)


def download(name: str, revision: str | None, files: Sequence[str]) -> Path:
    """The folder of a repository's `files`, as it lies in the cache.

    Raises:
        DataError: when there is no such repository, or the hub cannot be reached.
    """
    mistyped = mistyped_folder(name)
    if mistyped is not None:
        raise DataError(f"There is no saved classifier {name!r}. {mistyped}")
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        found = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(files)
        )
    except HFValidationError:
        raise DataError(f"There is no saved classifier {name!r}.") from None
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot download the classifier {name!r}: {error}") from error
    return Path(found)


def card_header(*, results: Sequence[Mapping[str, Any]] = (), **facts: Any) -> str:
    """What stands above a model card, as the hub reads it: `facts` by the hub's names, `results` as
    its `EvalResult` has them."""
    import huggingface_hub

    measured = [huggingface_hub.EvalResult(**result) for result in results]
    data = huggingface_hub.ModelCardData(**facts, eval_results=measured or None)
    return f"---\n{data.to_yaml()}\n---\n"
