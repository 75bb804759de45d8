"""shotfit push"""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit push pets user/pets --example photo.jpg",
    "shotfit push pets-merged user/pets-clip --private --revision v2",
)


def push(
    model: Annotated[
        Path, typer.Argument(help="A saved classifier, or the folder of `export merged`.")
    ],
    repository: Annotated[str, typer.Argument(help="Where on the hub: user/name.")],
    example: Annotated[
        Path | None,
        typer.Option(help="An image to upload too, which the card shows with its answers."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="A new repository is private.")
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Branch to upload to. [main]")] = None,
    message: Annotated[str | None, typer.Option(help="What the commit says.")] = None,
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Propose it, for others' repositories.")
    ] = False,
    backbone: options.SavedBackbone = None,
) -> None:
    """Upload a saved classifier or a merged export, with its model card, to the Hugging Face hub.

    `hf auth login`, or HF_TOKEN, says who you are. `FewShotClassifier.from_pretrained("user/name")`
    and every command that takes a saved classifier read it from there.
    """
    from shotfit.errors import DataError, UsageError
    from shotfit.saved_settings import CONFIG, is_saved
    from shotfit.system.model_hub import Push, upload

    merged = (model / "config.json").is_file() and (model / "model.safetensors").is_file()
    if merged and not is_saved(model):
        if example is not None:
            raise UsageError("The example of a merged export is its own: export merged --example.")
        push = Push(private or None, None, revision, pull_request or None, message)
        print(upload(lambda folder: _copied(model, folder), repository, push))
        return
    if not (model / CONFIG).is_file():
        raise DataError(f"{model} is no saved classifier and no merged export: nothing to upload.")
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier

    given = confirmed(str(model), backbone)
    address = FewShotClassifier.from_pretrained(model, backbone=given).push_to_hub(
        repository,
        example=example,
        private=private or None,
        branch=revision,
        create_pr=pull_request or None,
        commit_message=message,
    )
    print(address)


def _copied(folder: Path, target: Path) -> None:
    shutil.copytree(folder, target, dirs_exist_ok=True)
